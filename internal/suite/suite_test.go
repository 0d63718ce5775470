package suite

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const events = `{"Action":"start","Package":"shop"}
{"Action":"run","Package":"shop","Test":"TestPay"}
{"Action":"output","Package":"shop","Test":"TestPay","Output":"    pay_test.go:9: timeout\n"}
{"Action":"fail","Package":"shop","Test":"TestPay","Elapsed":0.1}
{"Action":"run","Package":"shop","Test":"TestList"}
{"Action":"pass","Package":"shop","Test":"TestList"}
{"Action":"run","Package":"shop","Test":"TestLater"}
{"Action":"skip","Package":"shop","Test":"TestLater"}
{"Action":"run","Package":"shop","Test":"TestHang"}
{"Action":"fail","Package":"shop"}
# broken
{"ImportPath":"broken","Action":"build-output","Output":"x.go:1:1: no\n"}
{"Action":"fail","Package":"broken","FailedBuild":"broken"}
`

func TestGoTest(t *testing.T) {
	want := []Test{
		{"broken", "broken", Failed},
		{"shop", "TestHang", Unfinished},
		{"shop", "TestLater", Skipped},
		{"shop", "TestList", Passed},
		{"shop", "TestPay", Failed},
	}
	for _, size := range []int{1, 7, len(events)} {
		var out bytes.Buffer
		g := GoTest{Out: &out}
		for piece := range slices.Chunk([]byte(events), size) {
			if _, err := g.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, g.Tests()); diff != "" {
			t.Errorf("pieces of %d bytes: %s", size, diff)
		}
		if got, want := out.String(), "    pay_test.go:9: timeout\n# broken\nx.go:1:1: no\n"; got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
}

func TestWithJSON(t *testing.T) {
	if got := WithJSON([]string{"go", "test", "./..."}); !slices.Equal(got, []string{"go", "test", "-json", "./..."}) {
		t.Error(got)
	}
	for _, argv := range [][]string{{"go", "test", "-C", "x", "."}, {"go", "test", "-C=x", "."}} {
		if got := WithJSON(argv); got[len(got)-2] != "-json" {
			t.Error(got)
		}
	}
	if got := WithJSON([]string{"go", "test", "-json", "."}); len(got) != 4 {
		t.Error(got)
	}
	if IsGoTest([]string{"go", "vet"}) || IsGoTest([]string{"pytest"}) || !IsGoTest([]string{"/usr/bin/go", "test"}) {
		t.Error("what is a go test")
	}
}

func TestJUnit(t *testing.T) {
	got, err := JUnit(strings.NewReader(`<?xml version="1.0"?><testsuites><testsuite name="s"><testsuite>
<testcase classname="a" name="two"><failure message="x">text</failure></testcase>
<testcase classname="a" name="one"/><testcase classname="b" name="three"><skipped/></testcase>
<testcase name="four"><error/></testcase></testsuite></testsuite></testsuites>`))
	want := []Test{{"", "four", Failed}, {"a", "one", Passed}, {"a", "two", Failed}, {"b", "three", Skipped}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, text := range []string{"", "<html></html>", "<testsuite><testcase></testsuite>"} {
		if got, err := JUnit(strings.NewReader(text)); err == nil {
			t.Errorf("%q: %v, and no error", text, got)
		}
	}
}
