package prober

import (
	"bufio"
	"encoding/gob"
	"errors"
	"io"
	"time"

	"netemd/probe"
)

// message is what a child writes to its standard output: samples as they come, and the
// end. The encoding is gob: at 20,000 samples a second JSON costs more than the calls
// do (see BenchmarkMessages), and fields that a sample gets later need nothing here.
type message struct {
	Samples []probe.Sample
	// End is in the last message.
	End *end
}

// end is what is known when all calls have been made.
type end struct {
	Load probe.Load
	// UDP is what became of all packets, for the kind udp.
	UDP *probe.Datagrams
	// Settings are what the caller says of itself.
	Settings map[string]string
	// Outages are the times in which calls failed; nil: none did.
	Outages *probe.Outages
	// Error is why there are fewer samples than ordered; Unsupported, that this machine
	// cannot do what was ordered.
	Error       string
	Unsupported bool
}

const (
	// queued is how many samples may wait to be written, so that a busy parent does
	// not hold up the next call.
	queued = 8192
	// batch bounds one message.
	batch = 512
	// gap is the least time between two writes: what came meanwhile goes together.
	gap = 2 * time.Millisecond
	// beat is the longest silence of a child that is well.
	beat = time.Second
)

// write encodes samples until the channel is closed, then the end. After an error it goes
// on taking them, so that nobody blocks.
func write(out io.Writer, samples <-chan probe.Sample, last <-chan end) error {
	w := bufio.NewWriterSize(out, 64<<10)
	enc := gob.NewEncoder(w)
	pulse := time.NewTicker(beat)
	defer pulse.Stop()
	var first error
	send := func(m message) {
		if first == nil {
			first = enc.Encode(m)
		}
	}
	flush := func() {
		if first == nil {
			first = w.Flush()
		}
	}
	together := make([]probe.Sample, 0, batch)
	for {
		select {
		case s := <-samples:
			together = fill(append(together[:0], s), samples)
			send(message{Samples: together})
			if len(samples) < batch {
				flush()
				time.Sleep(gap)
			}
		case <-pulse.C:
			send(message{})
			flush()
		case e := <-last: // all samples are in the channel by now
			for len(samples) > 0 {
				send(message{Samples: fill(together[:0], samples)})
			}
			send(message{End: &e})
			flush()
			return first
		}
	}
}

// fill takes what is waiting.
func fill(to []probe.Sample, samples <-chan probe.Sample) []probe.Sample {
	for len(to) < cap(to) {
		select {
		case s := <-samples:
			to = append(to, s)
		default:
			return to
		}
	}
	return to
}

// read decodes a child's messages to the last one. heard is told of all of them.
func read(r io.Reader, heard func([]probe.Sample)) (*end, error) {
	dec := gob.NewDecoder(bufio.NewReaderSize(r, 64<<10))
	for {
		var m message
		if err := dec.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("its output ended early")
			}
			return nil, err
		}
		heard(m.Samples)
		if m.End != nil {
			return m.End, nil
		}
	}
}
