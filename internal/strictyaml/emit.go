package strictyaml

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// width is how long a line may become by what is written in one.
const width = 100

// emitter writes trees. It does so itself since the library writes a text of several
// lines as a block, which most keys do not take, and has no way to put short mappings into a
// line.
type emitter struct{ bytes.Buffer }

// mapping writes a line for each key, behind what its line has already.
func (e *emitter) mapping(t tree, depth int) {
	for i, key := range t.keys {
		if i > 0 || depth == 0 {
			e.indent(depth)
		}
		e.WriteString(scalar(key) + ":")
		e.value(t.values[i], depth)
	}
}

// value writes what stands behind a key or dash at depth.
func (e *emitter) value(t tree, depth int) {
	line := flow(t)
	room := width - 2*depth - len(line) - 20 // a key's length, more or less
	switch {
	case t.way == asScalar && t.block && blocky(t.text):
		e.block(t.text, depth+1)
	case t.way == asScalar, t.empty(), depth > 0 && room >= 0 && !hasBlock(t), t.way == asList && flat(t) && room >= 0:
		e.WriteString(" " + line + "\n")
	case t.way == asList:
		e.WriteByte('\n')
		for _, in := range t.values {
			e.indent(depth + 1)
			e.WriteString("-")
			e.element(in, depth+1)
		}
	default:
		e.WriteByte('\n')
		e.indent(depth + 1)
		e.mapping(t, depth+1)
	}
}

// element writes what stands behind a dash.
func (e *emitter) element(t tree, depth int) {
	if long := 2*depth+len(flow(t)) > width-2; t.way != asList && t.way != asScalar && !t.empty() && (long || hasBlock(t)) {
		e.WriteByte(' ')
		e.mapping(t, depth+1)
		return
	}
	e.value(t, depth)
}

func (e *emitter) indent(depth int) { e.WriteString(strings.Repeat("  ", depth)) }

func (e *emitter) block(text string, depth int) {
	e.WriteString(" |\n")
	for line := range strings.Lines(text) {
		e.indent(depth)
		e.WriteString(line)
	}
}

// blocky reports whether a block of text says s: lines that all end, of which none begins
// or ends with what a block may take for its own.
func blocky(s string) bool {
	if !strings.HasSuffix(s, "\n") || strings.HasSuffix(s, "\n\n") || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' }) {
		return false
	}
	for line := range strings.Lines(s) {
		if line == "\n" || strings.HasPrefix(line, " ") || strings.HasSuffix(line, " \n") {
			return false
		}
	}
	return true
}

func hasBlock(t tree) bool {
	return t.block && blocky(t.text) || slices.ContainsFunc(t.values, hasBlock)
}

// flat reports whether a list has scalars only.
func flat(t tree) bool {
	return !slices.ContainsFunc(t.values, func(in tree) bool { return in.way != asScalar })
}

// flow is a tree in one line.
func flow(t tree) string {
	parts := make([]string, len(t.values))
	for i, in := range t.values {
		switch parts[i] = flow(in); {
		case t.way != asList:
			parts[i] = scalar(t.keys[i]) + ": " + parts[i]
		case in.way == asScalar && !in.plain && parts[i] == in.text && strings.Contains(in.text, ":"):
			parts[i] = `"` + in.text + `"` // [web:80] is a list of a mapping to the library
		}
	}
	switch {
	case t.way == asList:
		return "[" + strings.Join(parts, ", ") + "]"
	case t.way != asScalar:
		return "{" + strings.Join(parts, ", ") + "}"
	case t.plain:
		return t.text
	}
	return scalar(t.text)
}

// bare is a text that is one without quotes, in lines and in brackets; ambiguous what other
// readers of YAML, of whichever version, take for something else.
var (
	bare = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^-{0,2}[A-Za-z0-9_./][A-Za-z0-9_./+%=-]*(:[A-Za-z0-9_./+%=-]+)?$`)
	})
	ambiguous = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n|\.nan|\.inf|\.+|[0-9]+:.*|[0-9]{4}-.*|0[xob].*|-*[0-9_.]*|-*[0-9_.]+e[0-9+-]*)$`)
	})
)

// scalar is a text as it is written.
func scalar(s string) string {
	if _, err := strconv.ParseFloat(s, 64); err != nil && bare().MatchString(s) && (!ambiguous().MatchString(s) || isAddress(s)) {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) { // bytes: what is no UTF-8 stays as it is
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\r':
			b.WriteString(`\r`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// isAddress reports whether s is digits with three dots, which no YAML takes for a number.
func isAddress(s string) bool {
	return strings.Count(s, ".") == 3 && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..")
}
