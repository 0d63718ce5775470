package netemtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"netemd/netemtest"
	"netemd/qdisc"
)

// A test needs no more than this: a lab of its own, a server and a client in it, and a line for
// each fault. Everything ends with the test.
func TestExample(t *testing.T) {
	t.Parallel()
	lab := netemtest.Lab(t, `
lab: shop
nodes: {client: {}, server: {}}
links: [{a: client, b: server}]
targets: {api: {node: server, client: client, protocol: tcp, port: 8080}}
`)
	greet(t, lab)

	// The first SYN is lost, and the kernel sends it again after 1 s.
	syn := netemtest.Drop(t, "api", "syn", 1)
	start := time.Now()
	if _, err := greeting(t.Context(), lab, time.Minute); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("connected after %v", took)
	}
	syn.Clear()

	// Nobody answers.
	partition := netemtest.Partition(t, "api")
	if _, err := greeting(t.Context(), lab, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("through a partition: %v", err)
	}
	partition.Clear()

	// 50 ms each way, then 20 ms: a round trip to connect, and one for the answer.
	delay := netemtest.Inject(t, netemtest.Spec{Target: "api", Direction: netemtest.Both, Netem: qdisc.Netem{Delay: 50 * time.Millisecond}})
	for _, d := range []time.Duration{50 * time.Millisecond, 20 * time.Millisecond} {
		delay.Change(qdisc.Netem{Delay: d})
		start := time.Now()
		if _, err := greeting(t.Context(), lab, time.Minute); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 3*d {
			t.Errorf("%v each way, and an answer after %v", d, took)
		}
	}
}

// greet serves connections on the lab's server, each with one line.
func greet(t testing.TB, lab *netemtest.Network) {
	l, err := lab.Node("server").Listen("tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go serveGreetings(l)
}

func serveGreetings(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_, _ = fmt.Fprintln(c, "hello")
		}()
	}
}

// greeting is what the server says to the lab's client.
func greeting(ctx context.Context, lab *netemtest.Network, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return greetingAt(ctx, lab, lab.Addr("api"))
}

func greetingAt(ctx context.Context, lab *netemtest.Network, address string) (string, error) {
	c, err := lab.Node("client").DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if at, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(at)
	}
	return bufio.NewReader(c).ReadString('\n')
}

// shop is a lab whose api has a proxy before it.
const shop = `
lab: shop
nodes:
  client: {}
  server:
    services:
      - {name: proxy, kind: toxiproxy, port: 9080, upstream: server:8080}
links:
  - {a: client, b: server}
targets:
  api: {node: server, client: client, protocol: tcp, port: 8080, proxy: proxy}
`

// open starts a session with the shop, for examples, which have no testing.TB.
func open(ctx context.Context) (*netemtest.Session, *netemtest.Network, func()) {
	s, err := netemtest.Start(ctx, netemtest.Config{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	lab, err := s.Lab(ctx, shop)
	if err != nil {
		fmt.Println(errors.Join(err, s.Close()))
		os.Exit(1)
	}
	l, err := lab.Node("server").Listen("tcp", ":8080")
	if err != nil {
		fmt.Println(err)
	}
	go serveGreetings(l)
	return s, lab, func() {
		if err := errors.Join(l.Close(), s.Close()); err != nil {
			fmt.Println(err)
		}
	}
}

// A lost SYN: the connect takes the second after which the kernel sends it again.
func ExampleSession_Inject() {
	ctx := context.Background()
	s, lab, end := open(ctx)
	defer end()

	syn, err := s.Inject(ctx, netemtest.Spec{Target: "api", Rule: netemtest.Rule{Packets: "syn", Count: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	hello, err := greeting(ctx, lab, time.Minute)
	fmt.Printf("%q %v\n", hello, err)
	fmt.Println("it took a second:", time.Since(start) >= time.Second)
	stats, err := syn.Stats(ctx)
	fmt.Println(stats.Chosen, "packet dropped", err)
	// Output:
	// "hello\n" <nil>
	// it took a second: true
	// 1 packet dropped <nil>
}

// A partition: nobody says no, so that only the client's own deadline ends the call.
func ExampleSession_Inject_partition() {
	ctx := context.Background()
	s, lab, end := open(ctx)
	defer end()

	partition, err := s.Inject(ctx, netemtest.Spec{Target: "api", Direction: netemtest.Both, Netem: qdisc.Netem{Loss: 100}})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = greeting(ctx, lab, 200*time.Millisecond)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(partition.Clear(ctx))
	hello, err := greeting(ctx, lab, time.Minute)
	fmt.Printf("%q %v\n", hello, err)
	// Output:
	// true
	// <nil>
	// "hello\n" <nil>
}

// A toxic: what a proxy does to a stream that is open, here closing it after three bytes.
func ExampleSession_Inject_toxic() {
	ctx := context.Background()
	s, lab, end := open(ctx)
	defer end()

	toxic, err := s.Inject(ctx, netemtest.Spec{Target: "api", Toxics: []netemtest.ToxicSpec{{Kind: "limit_data", Bytes: 3}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	through, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	hello, err := greetingAt(through, lab, lab.Proxy("api"))
	fmt.Printf("%q %v\n", hello, err)
	fmt.Println(toxic.Clear(ctx))
	hello, err = greetingAt(through, lab, lab.Proxy("api"))
	fmt.Printf("%q %v\n", hello, err)
	// Output:
	// "hel" EOF
	// <nil>
	// "hello\n" <nil>
}
