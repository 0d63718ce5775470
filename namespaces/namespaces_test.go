package namespaces

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	long := strings.Repeat("n", 255)
	for name, ok := range map[string]bool{
		"a": true, "netem-pg-wire": true, "...": true, "with space": true, long: true,
		"": false, ".": false, "..": false, "a/b": false, "/": false, "a\x00b": false, long + "n": false,
	} {
		err := CheckName(name)
		if (err == nil) != ok {
			t.Errorf("CheckName(%.20q) = %v, want allowed %v", name, err, ok)
		}
		if err != nil && !errors.Is(err, ErrName) {
			t.Errorf("CheckName(%.20q) = %v, want an ErrName", name, err)
		}
	}
}

func TestShorten(t *testing.T) {
	for name, want := range map[string]string{
		"":                 "",
		"eth0":             "eth0",
		"exactly-15-byte":  "exactly-15-byte",
		"sixteen-bytes-16": "sixteen--afwpeh",
	} {
		got := Shorten(name)
		if got != want {
			t.Errorf("Shorten(%q) = %q, want %q", name, got, want)
		}
		if len(got) > MaxDevice {
			t.Errorf("Shorten(%q) = %q, longer than %d bytes", name, got, MaxDevice)
		}
	}
	a, b := Shorten("database-primary-1"), Shorten("database-primary-2")
	if a == b {
		t.Errorf("two names are both %q", a)
	}
	if again := Shorten("database-primary-1"); again != a {
		t.Errorf("the same name is %q, then %q", a, again)
	}
	if err := CheckDevice(a); err != nil {
		t.Error(err)
	}
}

func TestVethEndCheck(t *testing.T) {
	for _, c := range []struct {
		end  VethEnd
		want string
	}{
		{VethEnd{Name: "eth0"}, ""},
		{VethEnd{Name: "sixteen-bytes-16"}, "1 to 15 bytes"},
		{VethEnd{Name: "a/b"}, "1 to 15 bytes"},
		{VethEnd{Name: "a:b"}, "1 to 15 bytes"},
		{VethEnd{}, "1 to 15 bytes"},
		{VethEnd{Name: "eth0", Alias: strings.Repeat("x", 256)}, "at most 255 bytes"},
	} {
		err := c.end.check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("check %+v: %v, want %q", c.end, err, c.want)
		}
	}
}
