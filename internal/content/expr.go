package content

import (
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"strconv"
	"strings"

	"netemd/qdisc"
)

// ParseExpr checks an expression, which is written as the package's documentation says.
// The error is a *qdisc.FieldError of field "expr" that names the column.
func ParseExpr(src string) (Condition, error) {
	refuse := func(want string) error {
		return &qdisc.FieldError{Field: "expr", Value: src, Want: want}
	}
	wrong := func(column int, why string) error {
		return &qdisc.FieldError{Field: "expr", Value: src, Why: fmt.Sprintf("column %d: %s", column, why)}
	}
	switch {
	case strings.TrimSpace(src) == "":
		return nil, refuse("an expression, such as 'tcp.len > 100 && tcp.psh'")
	case len(src) > MaxExpr:
		return nil, &qdisc.FieldError{Field: "expr", Want: fmt.Sprintf("at most %d bytes, not %d", MaxExpr, len(src))}
	case strings.ContainsAny(src, "\n\r\x00"):
		return nil, refuse("one line")
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseExprFrom(fset, "", readable(src), parser.SkipObjectResolution)
	if err != nil {
		var list scanner.ErrorList
		if errors.As(err, &list) && len(list) > 0 {
			return nil, wrong(list[0].Pos.Column, list[0].Msg)
		}
		return nil, wrong(1, err.Error())
	}
	c := checker{src: src}
	cond := c.condition(tree)
	if c.terms > MaxTerms {
		c.refuse(tree, fmt.Sprintf("%d fields, bytes and texts: at most %d", c.terms, MaxTerms))
	}
	if c.err != "" {
		return nil, wrong(c.at, c.err)
	}
	return cond, nil
}

// readable makes a name of Go's keyword type, which icmp.type ends with, in its place.
func readable(src string) []byte {
	b := []byte(src)
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(b))
	var s scanner.Scanner
	s.Init(file, b, func(token.Position, string) {}, 0)
	for {
		pos, tok, _ := s.Scan()
		switch tok {
		case token.TYPE:
			b[file.Offset(pos)] = 'T'
		case token.EOF:
			return b
		}
	}
}

// checker turns Go's tree into ours, and keeps the first error.
type checker struct {
	src   string
	terms int
	at    int
	err   string
}

func (c *checker) refuse(n ast.Node, why string) {
	if c.err == "" {
		c.at, c.err = int(n.Pos()), why // a file set's first file begins at 1
	}
}

// text is n as it was typed.
func (c *checker) text(n ast.Node) string {
	from, to := int(n.Pos())-1, int(n.End())-1
	if from < 0 || to > len(c.src) || from > to {
		return "this"
	}
	return c.src[from:to]
}

func (c *checker) condition(n ast.Expr) Condition {
	switch n := n.(type) {
	case *ast.ParenExpr:
		return c.condition(n.X)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			return Not{c.condition(n.X)}
		}
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LAND:
			return And{c.condition(n.X), c.condition(n.Y)}
		case token.LOR:
			return Or{c.condition(n.X), c.condition(n.Y)}
		case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			return Compare{n.Op, c.number(n.X, 0), c.number(n.Y, 0)}
		}
	case *ast.CallExpr:
		return c.call(n)
	case *ast.Ident, *ast.SelectorExpr:
		f := c.field(n)
		if !f.condition() {
			c.refuse(n, fmt.Sprintf("%s is a number; want a comparison, such as %s > 0", f, f))
		}
		return Is{f}
	}
	c.refuse(n, fmt.Sprintf("%s is no condition; want comparisons, joined by && || !", c.text(n)))
	return Is{}
}

// number checks a number whose evaluation has depth others under way.
func (c *checker) number(n ast.Expr, depth int) Number {
	switch n := n.(type) {
	case *ast.ParenExpr:
		return c.number(n.X, depth)
	case *ast.BasicLit:
		return c.constant(n)
	case *ast.BinaryExpr:
		switch n.Op {
		case token.ADD, token.SUB, token.AND, token.OR:
			if depth >= MaxNesting-1 {
				c.refuse(n, fmt.Sprintf("at most %d sums in one another", MaxNesting))
				return Const(0)
			}
			return Arithmetic{n.Op, c.number(n.X, depth), c.number(n.Y, depth+1)}
		}
		c.refuse(n, fmt.Sprintf("%s is no number; numbers are joined by + - & |", c.text(n)))
		return Const(0)
	case *ast.IndexExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "payload" {
			c.terms++
			return Byte(c.offset(n.Index, 1))
		}
	case *ast.Ident, *ast.SelectorExpr:
		return c.field(n)
	}
	c.refuse(n, fmt.Sprintf("%s is no number; want a field, a constant, payload[5], or a sum of them", c.text(n)))
	return Const(0)
}

func (c *checker) field(n ast.Expr) Field {
	c.terms++
	name := ""
	switch n := n.(type) {
	case *ast.Ident:
		name = n.Name
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			name = x.Name + "." + n.Sel.Name
		}
	}
	if name == "icmp.Type" {
		name = strings.ReplaceAll(c.text(n), " ", "")
	}
	f, ok := names[name]
	if !ok {
		c.refuse(n, fmt.Sprintf("no field %s; want one of %s", c.text(n), alike(name)))
	}
	return f
}

func (c *checker) constant(n *ast.BasicLit) Const {
	switch n.Kind {
	case token.INT:
		if v, err := strconv.ParseUint(n.Value, 0, 32); err == nil {
			return Const(v)
		}
	case token.CHAR:
		if s, err := strconv.Unquote(n.Value); err == nil {
			if r := []rune(s); len(r) == 1 && r[0] < 256 {
				return Const(r[0])
			}
		}
	}
	c.refuse(n, fmt.Sprintf("%s is no number from 0 to 4294967295, and no character of one byte", n.Value))
	return 0
}

// call is payload.at(offset, text), the only one.
func (c *checker) call(n *ast.CallExpr) Condition {
	const want = `want payload.at(0, "text") or payload.at(0, 0x5100ff)`
	c.terms++
	fun, ok := n.Fun.(*ast.SelectorExpr)
	if !ok || len(n.Args) != 2 || n.Ellipsis.IsValid() {
		c.refuse(n, want)
		return Is{}
	}
	if x, ok := fun.X.(*ast.Ident); !ok || x.Name != "payload" || fun.Sel.Name != "at" {
		c.refuse(n, want)
		return Is{}
	}
	lit, ok := n.Args[1].(*ast.BasicLit)
	if !ok {
		c.refuse(n.Args[1], want)
		return Is{}
	}
	text, err := literal(lit)
	switch {
	case err != nil:
		c.refuse(lit, want)
	case len(text) == 0 || len(text) > MaxText:
		c.refuse(lit, fmt.Sprintf("want 1 to %d bytes", MaxText))
	}
	return At{c.offset(n.Args[0], len(text)), text}
}

// literal is a string, or bytes as hexadecimal digits behind 0x.
func literal(lit *ast.BasicLit) ([]byte, error) {
	if digits, ok := strings.CutPrefix(strings.ToLower(lit.Value), "0x"); ok {
		return hex.DecodeString(strings.ReplaceAll(digits, "_", ""))
	}
	if lit.Kind != token.STRING {
		return nil, strconv.ErrSyntax
	}
	s, err := strconv.Unquote(lit.Value)
	return []byte(s), err
}

// offset is where n bytes of the payload begin.
func (c *checker) offset(e ast.Expr, n int) int {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.INT {
		if v, err := strconv.ParseUint(lit.Value, 0, 32); err == nil && int(v)+n-1 <= MaxOffset {
			return int(v)
		}
	}
	c.refuse(e, fmt.Sprintf("%s is no place in the payload; want a number, up to %d", c.text(e), MaxOffset))
	return 0
}
