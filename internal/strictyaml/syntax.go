package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// What a file may look like before it is parsed: the parser takes time with the square of
// the keys, and memory with that of the depth. The largest sensible file is far below.
const (
	maxLine  = 4096
	maxDepth = 32
)

// plain refuses what no file of ours looks like. Brackets are counted wherever they
// stand: no sensible file has so many that are not closed.
func (f *Format) plain(text []byte) *Mistake {
	maxLines := cmp.Or(f.MaxLines, DefaultMaxLines)
	if len(text) > MaxSize {
		return tooLarge("")
	}
	n, open := 0, 0
	for line := range bytes.Lines(text) {
		n++
		refuse := func(column int, wrong, want string) *Mistake {
			return &Mistake{Line: n, Column: column + 1, Key: Whole, Wrong: wrong, Want: want}
		}
		deepest := max(bytes.Count(line, []byte("- ")), bytes.Count(line, []byte("? ")))
		for _, c := range line {
			switch c {
			case '[', '{':
				open++
				deepest = max(deepest, open)
			case ']', '}':
				open = max(0, open-1)
			}
		}
		switch nul := bytes.IndexByte(line, 0); {
		case n > maxLines:
			return refuse(0, "is too long", fmt.Sprintf("at most %d lines", maxLines))
		case len(line) > maxLine:
			return refuse(maxLine, "has a line that is too long", fmt.Sprintf("at most %d bytes in one", maxLine))
		case nul >= 0:
			return refuse(nul, "has a NUL byte", "text")
		case deepest > maxDepth:
			return refuse(0, "is nested too deep", fmt.Sprintf("at most %d levels", maxDepth))
		}
	}
	return nil
}

// simple refuses a file with several documents, anchors, aliases or tags; of a list with a
// tag the library makes a nil pointer.
func simple(file *ast.File) (refused *Mistake) {
	refuse := func(n ast.Node, wrong, want string) {
		if refused == nil {
			refused = &Mistake{Key: Whole, Wrong: wrong, Want: want}
			refused.begin(n.GetToken())
		}
	}
	for i, d := range file.Docs {
		if i > 0 && refused == nil {
			refused = &Mistake{Key: Whole, Wrong: "has several documents", Want: "one"}
			refused.begin(d.Start)
		}
		if d.Body == nil {
			continue
		}
		ast.Walk(visit(func(n ast.Node) {
			switch n.(type) {
			case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
				refuse(n, "has an anchor, alias or merged key", "each value where it is used; what begins with '*' or '&' stands in quotes")
			case *ast.TagNode:
				refuse(n, "has a tag", "none: what kind of value a key has is known; what begins with '!' stands in quotes")
			case *ast.DirectiveNode:
				refuse(n, "has a directive", "keys; what begins with '%' stands in quotes")
			}
		}), d.Body)
	}
	return refused
}

func (m *Mistake) begin(t *token.Token) {
	if t != nil {
		m.Line, m.Column = t.Position.Line, t.Position.Column
	}
}

// visit is an ast.Visitor of every node.
type visit func(ast.Node)

func (v visit) Visit(n ast.Node) ast.Visitor { v(n); return v }

// syntax says an error of the library in one line.
func syntax(err error) *Mistake {
	m := &Mistake{Key: Whole, Wrong: "is not YAML", Want: "KEY: VALUE in each line, with spaces and no tabs before it"}
	message := err.Error()
	if e, ok := errors.AsType[yaml.Error](err); ok {
		message = e.GetMessage()
		m.begin(e.GetToken())
	}
	m.Wrong += ": " + strings.Join(strings.Fields(message), " ")
	return m
}
