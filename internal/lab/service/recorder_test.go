package service

import (
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		"a\nb\nc\nd\n":                       "b | c | d",
		"one\r\ntwo\tcolumns\r\n":            "one | two columns",
		"\x1b]0;title\a\x1b[31mred\n":        `\x1b]0;title\a\x1b[31mred`,
		"fine \u00e4\u20ac\nbad \xff":        "fine \u00e4\u20ac | bad ?",
		"back\u202ewards\u200b":              `back\u202ewards\u200b`,
		"said\n" + strings.Repeat("\x00", 9): "said",
		strings.Repeat("x", 2000):            strings.Repeat("x", 300) + "...",
	} {
		if got := LastLines([]byte(text)); got != want {
			t.Errorf("LastLines(%q) = %q, want %q", text, got, want)
		}
	}
	if got := LastLines([]byte("end" + strings.Repeat("\x00", 5000))); got != "" {
		t.Errorf("of zeros alone: %q, want nothing", got)
	}
}
