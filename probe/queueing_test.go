package probe

import (
	"math"
	"testing"
	"time"
)

// TestHeldFrom: what holds a call back is what does so in its middle, and a rate of packets does,
// byte by byte. Times are in ms.
func TestHeldFrom(t *testing.T) {
	rate := Held{ReceivedByte: 1e-6} // 1 MB/s
	toxic := Held{Turn: 200 * time.Millisecond, Least: 200 * time.Millisecond, Proxy: true}
	for _, test := range []struct {
		name     string
		from     map[int64]Held // by ms
		received uint64
		want     Cause
	}{
		{"nothing", nil, 300_000, Unknown},
		{"a rate that came before", map[int64]Held{9_000: rate}, 300_000, Queueing},
		{"a rate, and few bytes", map[int64]Held{9_000: rate}, 100_000, Unknown},
		{"a rate that came later", map[int64]Held{10_300: rate}, 300_000, Unknown},
		{"a rate that had gone", map[int64]Held{9_000: rate, 9_500: {}}, 300_000, Unknown},
		{"a toxic that went after it", map[int64]Held{10_100: toxic, 10_450: {}}, 0, Queueing},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := NewAttributor(Attribution{Traced: true, ClientCookie: clientCookie, ServerCookie: serverCookie})
			for at := range int64(20_000) {
				if h, ok := test.from[at]; ok {
					a.HeldFrom(at*ms, h)
				}
			}
			a.Add(Sample{
				StartNS: 10_000 * ms, EndNS: 10_400 * ms, Class: OK, Local: clientEnd, Remote: serverEnd, Reused: true, Turns: 1,
				Info: &TCPInfo{Received: test.received},
			})
			if got := a.Flush(math.MaxInt64)[0].Cause; got != test.want {
				t.Errorf("cause %q, want %q", got, test.want)
			}
		})
	}
	a := NewAttributor(Attribution{})
	for i := range int64(5000) {
		a.HeldFrom(i, Held{Turn: time.Duration(i)})
		a.HeldFrom(i, Held{Turn: time.Duration(i)})
	}
	if n := len(a.a.later); n > keptHoldings {
		t.Errorf("%d are kept", n)
	}
}
