package try

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"netemd/internal/feature"
	"netemd/internal/testenv"
)

func TestTries(t *testing.T) {
	testenv.Root(t)
	devices := func() []string {
		t.Helper()
		entries, err := os.ReadDir("/sys/class/net")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	before := devices()
	for _, try := range []func(context.Context) feature.Feature{TCX, CLSBPF, TUN} {
		f := try(context.Background())
		t.Logf("%+v", f)
		if f.State == feature.Inconclusive {
			t.Errorf("%s: inconclusive as root: %s", f.Name, f.Detail)
		}
		if f.Detail == "" || (f.State == feature.Yes) != (f.Hint == "") {
			t.Errorf("%s: %s without detail, or with a wrong hint: %+v", f.Name, f.State, f)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if f := try(ended); f.State != feature.Inconclusive {
			t.Errorf("%s: %s with an ended context", f.Name, f.State)
		}
	}
	if diff := cmp.Diff(before, devices()); diff != "" {
		t.Errorf("devices of the own namespace (-before +after):\n%s", diff)
	}
}

func TestTriedSaysWhy(t *testing.T) {
	testenv.Root(t)
	for _, tt := range []struct {
		err  error
		want feature.State
	}{
		{nil, feature.Yes},
		{unix.EPERM, feature.Inconclusive},
		{unix.ENOENT, feature.No},
		{errors.ErrUnsupported, feature.No},
	} {
		f := tried(context.Background(), "thing", "more", func() (string, error) { return "done", tt.err })
		if f.State != tt.want {
			t.Errorf("%v: %s, want %s", tt.err, f.State, tt.want)
		}
	}
}
