package audit

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Of one who asks again and again, a few are told one by one, and the rest of a minute as
// one record; others are told beside him.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // a window's end writes from a goroutine of its own
		var got []Record
		r := NewRefusals(func(rec Record) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, rec)
		})
		began := time.Now()
		const asked = 3 * Singly
		for i := range asked {
			told := r.Add("uid 7", Record{Actor: "uid 7", Verb: "apply", Code: "PermissionDenied", Error: fmt.Sprint("no ", i)})
			if told != (i < Singly) {
				t.Errorf("refusal %d was told: %t", i, told)
			}
			time.Sleep(time.Second)
		}
		if !r.Add("uid 8", Record{Actor: "uid 8"}) {
			t.Error("another was not told")
		}
		time.Sleep(window)
		synctest.Wait()
		if len(got) != Singly+2 {
			t.Fatalf("%d records, want %d, one of another and one of the rest", len(got), Singly)
		}
		var rest Record
		for _, rec := range got {
			if rec.Verb == Refused {
				rest = rec
			}
		}
		if rest.Count != asked-Singly || rest.Actor != "uid 7" || rest.Code != "PermissionDenied" || !strings.HasSuffix(rest.Error, fmt.Sprint("no ", asked-1)) ||
			!rest.First.Equal(began.Add(Singly*time.Second)) || !rest.Last.Equal(began.Add((asked-1)*time.Second)) {
			t.Errorf("the rest: %+v", rest)
		}
		if !r.Add("uid 7", Record{}) {
			t.Error("after a minute it is not told")
		}
		r.Close()
	})
}

// Many peers, as from many addresses, are told together; and the end tells what is left.
func TestRefusalsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Record
		r := NewRefusals(func(rec Record) { got = append(got, rec) })
		const peers = 1000
		for i := range peers {
			r.Add(fmt.Sprint("peer ", i), Record{Actor: fmt.Sprint("peer ", i), Verb: "connect", Peer: &Peer{}})
		}
		if len(got) != maxPeers+Singly {
			t.Errorf("%d records at once, want %d", len(got), maxPeers+Singly)
		}
		r.Close()
		last := got[len(got)-1]
		if want := peers - maxPeers - Singly; last.Verb != Refused || last.Count != want || last.Actor != several || last.Peer != nil {
			t.Errorf("the rest: %+v, want %d of several", last, want)
		}
		if r.Add("late", Record{Verb: "x"}); got[len(got)-1].Verb != "x" {
			t.Error("what comes after the end is not told")
		}
		r.Close()
	})
}

func TestRefusedPath(t *testing.T) {
	for path, want := range map[string]string{
		"/var/log/netemd/audit.jsonl": "/var/log/netemd/audit.refused.jsonl", "/x/a": "/x/a.refused", "/x.y/a": "/x.y/a.refused",
	} {
		if got := RefusedPath(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
