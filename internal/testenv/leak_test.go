package testenv

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestLeaksNameWhatWasLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("descriptors are listed on Linux only")
	}
	before := snapshot()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() { defer close(ended); <-stop }()

	leaks := before.leaks(nil)
	if leaks == nil {
		t.Fatal("no leak was found")
	}
	for _, want := range []string{"1 more open descriptors of " + os.DevNull, "2 more open descriptors of pipe", "TestLeaksNameWhatWasLeft.func"} {
		if !strings.Contains(leaks.Error(), want) {
			t.Errorf("no %q in:\n%v", want, leaks)
		}
	}

	close(stop)
	<-ended
	f.Close()
	r.Close()
	w.Close()
	if err := before.leaks(nil); err != nil {
		t.Errorf("after closing everything: %v", err)
	}
}
