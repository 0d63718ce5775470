package impairment

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

type file struct {
	I Keys `yaml:"i"`
}

func read(text string) (Keys, error) {
	var f file
	doc := (&strictyaml.Format{}).Read("", []byte(text), &f)
	if doc.Readable() {
		errs, rest := strictyaml.Of(f.I.Validate())
		if rest != nil {
			return f.I, rest
		}
		for _, m := range errs {
			m.Key = strings.TrimSuffix("i."+m.Key, ".")
		}
		doc.Add(errs...)
	}
	return f.I, doc.Err()
}

// Both forms say the same, and what is written is read back as the same.
func TestForms(t *testing.T) {
	for text, tc := range map[string]string{
		"{delay: 10ms, jitter: 2ms, delay_correlation: 25%, distribution: normal}": "delay 10ms 2ms 25% distribution normal",
		"{loss: 1%, loss_correlation: 25%, ecn: true}":                             "loss 1% 25% ecn",
		"{loss_gemodel: \"1%,10%\", duplicate: 1%, corrupt: 0.1%}":                 "loss gemodel 1% 10% duplicate 1% corrupt 0.1%",
		"{loss_state: \"1%,10%,5%,50%,0.1%\"}":                                     "loss state 1% 10% 5% 50% 0.1%",
		"{delay: 10ms, reorder: 25%, reorder_correlation: 50%, gap: 5}":            "delay 10ms reorder 25% 50% gap 5",
		"{rate: 10mbit, packet_overhead: 14, cell_size: 48, cell_overhead: -5}":    "rate 10mbit 14 48 -5",
		"{slot: \"10ms,20ms\", slot_packets: 5, slot_bytes: 64kB}":                 "slot 10ms 20ms packets 5 bytes 64000",
		"{slot: \"normal,10ms,5ms\", limit: 100}":                                  "slot distribution normal 10ms 5ms limit 100",
	} {
		keys, err := read("i: " + text)
		words, errWords := read("i: " + tc)
		if diff := cmp.Diff(keys.Netem(), words.Netem()); err != nil || errWords != nil || diff != "" {
			t.Errorf("%s: %v, %v (-keys +words):\n%s", text, err, errWords, diff)
		}
		again, err := strictyaml.Write(file{keys})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(string(again)); err != nil || got != keys {
			t.Errorf("%s: %v, read back as %+v", again, err, got)
		}
	}
	got, err := read("i: {rate: 8mbit, queue: 100ms, delay: 50ms}")
	if err != nil || got.Netem().Limit != qdisc.LimitForQueue(1e6, 150*time.Millisecond) {
		t.Errorf("%+v, %v", got.Netem(), err)
	}
}

// Each field that a validation can name is a key.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"{jitter: 2ms}":                              "1:5: i.jitter: \"2ms\" is not valid, want a delay that it varies",
		"{delay: 1ms, jitter: 2ms}":                  "1:17: i.jitter: \"2ms\" is not valid, want at most the delay, 1ms",
		"{loss_correlation: 2%}":                     "1:5: i.loss_correlation: \"2%\" is not valid, want a share of loss",
		"{reorder: 2%}":                              "1:5: i.reorder: \"2%\" is not valid, want a delay",
		"{delay: 1ms, gap: 2}":                       "1:17: i.gap: \"2\" is not valid, want a reorder share",
		"{delay: 1ms, packet_overhead: 2}":           "1:17: i.packet_overhead: ",
		"{delay: 1ms, queue: 2s}":                    "1:17: i.queue: \"2s\" is not valid, want a rate",
		"{rate: 1mbit, queue: 2s, limit: 5}":         "1:18: i.queue: \"2s\" is not valid, want either a queue or a limit",
		"{loss_gemodel: \"0%,10%\"}":                 "1:5: i.loss_gemodel: ",
		"{ecn: true}":                                "1:1: i: impairs nothing",
		"{limit: 5}":                                 "1:1: i: impairs nothing",
		"delay 10x":                                  "1:1: i: \"delay 10x\" is not valid",
		"{delay: 10ms, distribution: gauss}":         "1:18: i.distribution: \"gauss\" is not valid, want uniform, normal, pareto or paretonormal",
		"{loss: 1%, loss_state: \"1%\"}":             "1:15: i.loss_state: ",
		"{slot: \"10ms\", slot_packets: 3000000000}": "1:19: i.slot_packets: ",
		"{lose: 1%}":                                 "1:5: i.lose: is an unknown key, want one of loss,",
	} {
		_, err := read("i: " + text)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}

// Nothing of a Netem is left out.
func TestEveryField(t *testing.T) {
	for f := range reflect.TypeFor[qdisc.Netem]().Fields() {
		var n qdisc.Netem
		v := reflect.ValueOf(&n).Elem().FieldByIndex(f.Index)
		switch {
		case f.Name == "Samples":
			continue
		case v.CanInt():
			v.SetInt(7)
		case v.CanUint():
			v.SetUint(7)
		case v.CanFloat():
			v.SetFloat(7)
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		case v.Kind() == reflect.String:
			v.SetString("normal")
		default:
			n.LossState, n.GilbertElliott, n.Slot = qdisc.LossState{P13: 1}, qdisc.GilbertElliott{P: 1}, qdisc.Slot{MinDelay: 1, Packets: 2, Bytes: 3}
		}
		k, err := Of(n)
		if got := k.Netem(); err != nil || got != n {
			t.Errorf("%s: %+v became %+v, %v", f.Name, n, got, err)
		}
	}
}
