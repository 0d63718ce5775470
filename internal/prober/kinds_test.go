package prober

import (
	"context"
	"net"
	"testing"
	"time"

	"netemd/internal/testbed"
	"netemd/probe"
)

// TestKinds runs each kind in a child, against the servers of a lab.
func TestKinds(t *testing.T) {
	serve := func(f func(context.Context, net.Listener) error) Order {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f(ctx, l) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return Order{Address: l.Addr().(*net.TCPAddr).AddrPort()}
	}
	echo, web, rpc := serve(testbed.EchoAtPort), serve(testbed.HTTPEcho), serve(testbed.GRPCEcho)
	for _, test := range []struct {
		o Order
		r probe.Request
	}{
		{echo, probe.Request{Kind: probe.KindTCP}},
		{echo, probe.Request{Kind: probe.KindTCP, TCP: probe.TCPOptions{Mode: "echo", Keep: true}}},
		{echo, probe.Request{Kind: probe.KindTCP, TCP: probe.TCPOptions{Mode: "bulk"}}},
		{echo, probe.Request{Kind: probe.KindTCP, TCP: probe.TCPOptions{Mode: "download", Keep: true}}},
		{echo, probe.Request{Kind: probe.KindUDP}},
		{web, probe.Request{Kind: probe.KindHTTP}},
		{web, probe.Request{Kind: probe.KindHTTP, HTTP: probe.HTTPOptions{Version: "2", Keep: true, Path: "/bytes/1000"}}},
		{rpc, probe.Request{Kind: probe.KindGRPC}},
		{rpc, probe.Request{Kind: probe.KindGRPC, GRPC: probe.GRPCOptions{Mode: "bidi", New: true}}},
	} {
		r := test.r
		r.Count, r.Pace, r.Timeout = 20, probe.NoPace, 20*time.Second
		test.o.Request = r
		result, err := Measure(t.Context(), Config{Order: test.o, Keep: 20})
		s := result.Summary
		if err != nil || s.OK != 20 || len(result.Samples) != 20 || len(s.Settings) == 0 {
			t.Errorf("%s: %+v, %v", r.Kind, s, err)
			continue
		}
		if (s.UDP != nil) != (r.Kind == probe.KindUDP) || r.Kind == probe.KindUDP &&
			(s.UDP.Sent != 20 || s.UDP.Answered != 20 || !s.UDP.OneClock || s.OneWay == nil || *s.OneWay.There.P50 <= 0 || *s.OneWay.Back.P50 <= 0) {
			t.Errorf("%s: packets %+v, one way %+v", r.Kind, s.UDP, s.OneWay)
		}
	}
}
