package strictyaml

import (
	"fmt"
	"strings"
)

// Word is a key or name as paths and errors have it: in quotes where it could be taken for
// something else.
func Word(key string) string {
	if key == "" || len(key) > maxQuoted || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`.:[]"`, r) }) {
		return Quote(key)
	}
	return key
}

// Key joins the parts of a path: strings by dots, each as a Word, and ints as the index of a
// list. Key("nodes", "web", "services", 0, "port") is "nodes.web.services[0].port".
func Key(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", p)
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(Word(fmt.Sprint(p)))
		}
	}
	return b.String()
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}

// parent is "allow" of "allow[0]", and that of "allow[0].verbs"; what is quoted is one part.
func parent(key string) string {
	last, quoted := 0, false
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '.' || c == '['):
			last = i
		}
	}
	return key[:last]
}
