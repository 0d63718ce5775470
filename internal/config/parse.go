package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// MaxSize is the largest configuration file, in bytes.
const MaxSize = 1 << 20

// What a file may look like before it is parsed: the parser takes time with the square of
// the keys, and memory with that of the depth. The largest sensible file is far below.
const (
	maxLines = 10_000
	maxLine  = 4096
	maxDepth = 32
)

// Load reads the file at path, or DefaultPath for an empty one, which alone may be
// missing: the result is Default then. Everything is checked that can be without asking
// the host who exists. An error of the text names file and line.
func Load(path string) (Config, error) {
	named := path != ""
	if !named {
		path = DefaultPath
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return Default(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	c, err := Parse(text)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse reads a configuration over Default, and validates it. Unknown and repeated keys
// are refused, and so is what would make one file mean several: further documents,
// anchors, aliases and tags.
func Parse(text []byte) (Config, error) {
	if len(text) > MaxSize {
		return Config{}, fmt.Errorf("larger than %d bytes", MaxSize)
	}
	if err := plain(text); err != nil {
		return Config{}, err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return Config{}, explain(err, nil)
	}
	if err := simple(file); err != nil {
		return Config{}, err
	}
	c := Default()
	if len(file.Docs) > 0 && file.Docs[0].Body != nil {
		err := yaml.NewDecoder(bytes.NewReader(nil), yaml.Strict()).DecodeFromNode(file.Docs[0].Body, &c)
		if err != nil && !errors.Is(err, io.EOF) {
			return Config{}, explain(err, file)
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// YAML is the configuration as a file that Parse reads back.
func (c Config) YAML() ([]byte, error) { return yaml.MarshalWithOptions(c, yaml.IndentSequence(true)) }

// plain refuses what no configuration looks like. Brackets are counted wherever they
// stand: no sensible file has so many that are not closed.
func plain(text []byte) error {
	n, open := 0, 0
	for line := range bytes.Lines(text) {
		n++
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
		switch {
		case n > maxLines:
			return fmt.Errorf("more than %d lines", maxLines)
		case len(line) > maxLine:
			return fmt.Errorf("line %d: longer than %d bytes", n, maxLine)
		case bytes.IndexByte(line, 0) >= 0:
			return fmt.Errorf("line %d: a NUL byte, which no configuration has", n)
		case deepest > maxDepth:
			return fmt.Errorf("line %d: nested more than %d deep", n, maxDepth)
		}
	}
	return nil
}

// simple refuses a file with several documents, anchors, aliases or tags; of a list with a
// tag the library makes a nil pointer.
func simple(file *ast.File) error {
	if len(file.Docs) > 1 {
		return errors.New("several documents, want one")
	}
	var refused error
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		ast.Walk(visit(func(n ast.Node) {
			want := ""
			switch n.(type) {
			case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
				want = "no anchors, aliases and merged keys: each value stands where it is used"
			case *ast.TagNode:
				want = "no tags: what kind of value a key has is known"
			}
			if want != "" && refused == nil {
				refused = fmt.Errorf("line %d: want %s", n.GetToken().Position.Line, want)
			}
		}), d.Body)
	}
	return refused
}

// visit is an ast.Visitor of every node.
type visit func(ast.Node)

func (v visit) Visit(n ast.Node) ast.Visitor { v(n); return v }

// explain says an error of the library in one line with its line in the file, and for an
// unknown key those that are known.
func explain(err error, file *ast.File) error {
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	message := strings.TrimSpace(e.GetMessage())
	if _, ok := errors.AsType[*yaml.UnknownFieldError](err); ok && file != nil {
		parent := parentOf(file, e.GetToken().Position.Offset)
		message = fmt.Sprintf("unknown key %q", join(parent, e.GetToken().Value))
		if keys := keysAt(reflect.TypeFor[Config](), parent); len(keys) > 0 {
			message += ", known: " + strings.Join(keys, ", ")
		}
	}
	return fmt.Errorf("line %d: %s", e.GetToken().Position.Line, message)
}

func join(parent, key string) string {
	if parent == "" {
		return key
	}
	return parent + "." + key
}

// fieldOf is the path of a node as errors name it: "allow[1].verbs".
func fieldOf(n ast.Node) string {
	return strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), ".")
}

// parentOf is the path of the mapping whose key is at the offset.
func parentOf(file *ast.File, offset int) (parent string) {
	for _, d := range file.Docs {
		ast.Walk(visit(func(n ast.Node) {
			m, ok := n.(*ast.MappingValueNode)
			if !ok || m.Key.GetToken().Position.Offset != offset {
				return
			}
			parent = strings.TrimSuffix(fieldOf(m), "."+m.Key.GetToken().Value)
			if parent == m.Key.GetToken().Value {
				parent = ""
			}
		}), d.Body)
	}
	return parent
}

// keysAt are the keys of the mapping at that path below t.
func keysAt(t reflect.Type, path string) []string {
	for name := range strings.SplitSeq(path, ".") {
		name, _, _ = strings.Cut(name, "[")
		if name == "" {
			continue
		}
		found := false
		for f := range t.Fields() {
			if found = key(f) == name; found {
				t = f.Type
				break
			}
		}
		for t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if !found || t.Kind() != reflect.Struct {
			return nil
		}
	}
	var keys []string
	for f := range t.Fields() {
		keys = append(keys, key(f))
	}
	return keys
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}
