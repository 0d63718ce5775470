package kpi

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// word is one of a text, in quotes or not, and its column.
type word struct {
	text   string
	column int
}

// clauses takes what stands behind the expression off text, and returns the expression;
// why says what is wrong at a column.
func (k *KPI) clauses(text string) (expr string, column int, why string) {
	all := words(text)
	first := slices.IndexFunc(all, func(w word) bool { return slices.Contains([]string{"in", "of", "after", "within"}, w.text) })
	if first < 0 {
		return text, 0, ""
	}
	expr = text[:all[first].column-1]
	rest := all[first:]
	seen := map[string]bool{}
	for len(rest) > 0 {
		key := rest[0]
		if seen[key.text] {
			return "", key.column, "a second '" + key.text + "'"
		}
		seen[key.text] = true
		if len(rest) < 2 {
			return "", key.column, "nothing stands behind '" + key.text + "'"
		}
		value := rest[1]
		rest = rest[2:]
		switch key.text {
		case "in":
			if value.text == "every" {
				if len(rest) == 0 || rest[0].text != "repeat" {
					return "", value.column, "want 'every repeat'"
				}
				k.Every, rest = true, rest[1:]
				if len(rest) < 2 || rest[0].text != "of" || !slices.Contains(Phases, rest[1].text) {
					continue
				}
				value, rest = rest[1], rest[2:]
			}
			if !slices.Contains(Phases, value.text) {
				return "", value.column, "want a phase: " + strings.Join(Phases, ", ")
			}
			k.Phase = value.text
		case "of":
			name, err := unquote(value.text)
			if err != nil || name == "" {
				return "", value.column, "want the name of a case"
			}
			k.Case = name
		case "after", "within":
			d, err := time.ParseDuration(value.text)
			if err != nil || d <= 0 {
				return "", value.column, "want a time above 0, such as 5s"
			}
			if key.text == "after" {
				k.After = d
			} else {
				k.Within = d
			}
			if k.Within > 0 && k.After >= k.Within {
				return "", value.column, "want a time within later than the one after"
			}
		default:
			return "", key.column, "want 'in PHASE', 'of CASE', 'after TIME' or 'within TIME'"
		}
	}
	return expr, 0, ""
}

func unquote(s string) (string, error) {
	if strings.HasPrefix(s, `"`) {
		return strconv.Unquote(s)
	}
	return s, nil
}

// words are those of a text between spaces; a quoted text is one, whatever is in it.
func words(text string) (all []word) {
	for i := 0; i < len(text); {
		if text[i] == ' ' || text[i] == '\t' {
			i++
			continue
		}
		begin, quoted := i, false
		for i < len(text) && (quoted || text[i] != ' ' && text[i] != '\t') {
			switch {
			case text[i] == '"':
				quoted = !quoted
			case quoted && text[i] == '\\' && i+1 < len(text):
				i++
			}
			i++
		}
		all = append(all, word{text: text[begin:i], column: begin + 1})
	}
	return all
}
