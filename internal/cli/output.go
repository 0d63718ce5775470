package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"netemd/internal/report"
	"netemd/qdisc"
)

// The forms of output.
const (
	outTable = "table"
	outJSON  = "json"
	outJSONL = "jsonl"
	outYAML  = "yaml"
)

// yamlOutput marks the commands that have a file as one of their forms.
const yamlOutput = "yaml"

func (a *app) checkOutput(cmd *cobra.Command) error {
	if _, ok := cmd.Annotations[yamlOutput]; ok && a.output == outYAML {
		return nil
	}
	switch a.output {
	case outTable, outJSON, outJSONL:
		return nil
	}
	return usageError{&qdisc.FieldError{Field: "--output", Value: a.output, Want: "table, json or jsonl"}}
}

func (a *app) outputFlag(root *cobra.Command) {
	root.PersistentFlags().StringVarP(&a.output, "output", "o", outTable, "`FORM` of the data on stdout: table, json or jsonl")
	completeWords(root, "output", []string{outTable, outJSON, outJSONL})
}

// answer is what a command has to say, in all forms.
type answer struct {
	kind string
	// data is the JSON document's; lines are the objects of jsonl, by default data
	// alone.
	data  any
	lines []any
	table func(w io.Writer, s style)
}

func (a *app) emit(ans answer) error {
	switch a.output {
	case outJSON:
		return report.WriteJSON(a.out, ans.kind, ans.data)
	case outJSONL:
		lines := ans.lines
		if lines == nil {
			lines = []any{ans.data}
		}
		e := json.NewEncoder(a.out)
		e.SetEscapeHTML(false)
		for _, l := range lines {
			if err := e.Encode(l); err != nil {
				return err
			}
		}
		return nil
	}
	ans.table(a.out, a.style(a.env.StdoutTerminal))
	return nil
}

// anys makes the lines of jsonl; it is never nil, so that an empty list prints
// nothing.
func anys[T any](ts []T) []any {
	out := make([]any, len(ts))
	for i, t := range ts {
		out[i] = t
	}
	return out
}

// style colours text on a terminal.
type style struct{ on bool }

// style follows NO_COLOR (no-color.org) and dumb terminals.
func (a *app) style(terminal bool) style {
	return style{on: terminal && a.env.Getenv("NO_COLOR") == "" && a.env.Getenv("TERM") != "dumb"}
}

func (s style) wrap(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(t string) string    { return s.wrap("1", t) }
func (s style) soft(t string) string    { return s.wrap("2", t) }
func (s style) good(t string) string    { return s.wrap("32", t) }
func (s style) bad(t string) string     { return s.wrap("31", t) }
func (s style) warning(t string) string { return s.wrap("33", t) }

// table is rows of cells with a head.
type table struct {
	head []string
	// right are the columns that hold numbers, by index.
	right map[int]bool
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write aligns the columns; cells may be coloured.
func (t *table) write(w io.Writer, s style) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], width(c))
		}
	}
	line := func(row []string, paint func(string) string) {
		var b strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-width(c))
			switch {
			case t.right[i]:
				b.WriteString(pad + paint(c))
			case i == len(row)-1:
				b.WriteString(paint(c))
			default:
				b.WriteString(paint(c) + pad)
			}
			if i < len(row)-1 {
				b.WriteString("  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	line(t.head, s.soft)
	for _, row := range t.rows {
		line(row, func(c string) string { return c })
	}
}

// width is the number of columns that s takes: characters without colours.
func width(s string) int {
	n := 0
	for {
		before, after, ok := strings.Cut(s, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !ok {
			return n
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

// pairs writes names and values in two columns.
func pairs(w io.Writer, s style, rows [][2]string) {
	widest := 0
	for _, r := range rows {
		widest = max(widest, width(r[0]))
	}
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(w, "  %s%s  %s\n", s.soft(r[0]), strings.Repeat(" ", widest-width(r[0])), r[1])
		}
	}
}

// textWidth is where prose is broken.
const textWidth = 96

// wrap writes a paragraph with lines of at most textWidth characters; the second
// and later ones are indented.
func wrap(w io.Writer, text string) {
	n := 0
	for i, word := range strings.Fields(text) {
		switch l := utf8.RuneCountInString(word); {
		case i == 0:
			n = l
		case n+1+l > textWidth:
			fmt.Fprint(w, "\n  ")
			n = 2 + l
		default:
			fmt.Fprint(w, " ")
			n += 1 + l
		}
		fmt.Fprint(w, word)
	}
	fmt.Fprintln(w)
}
