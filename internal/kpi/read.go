package kpi

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/internal/strictyaml"
)

// literal is a number with a unit, which Go does not have.
var literal = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)?(%|(ns|us|ms|s|m|h)\b)`)

// reader turns the tree of a Go expression into nodes.
type reader struct {
	kpi    *KPI
	src    string
	values map[int]float64
	at     int
	why    string
}

// read parses the expression; why says what is wrong at a column.
func (r *reader) read(src string) (column int, why string) {
	r.src, r.values = src, map[int]float64{}
	// A literal with a unit is read as a name of the same length, so that columns stay.
	plain := literal.ReplaceAllStringFunc(src, func(s string) string { return strings.Repeat("_", len(s)) })
	for _, at := range literal.FindAllStringIndex(src, -1) {
		v, err := number(src[at[0]:at[1]])
		if err != nil {
			return at[0] + 1, err.Error()
		}
		r.values[at[0]] = v
	}
	tree, err := parser.ParseExprFrom(token.NewFileSet(), "", plain, parser.SkipObjectResolution)
	if err != nil {
		var list scanner.ErrorList
		if errors.As(err, &list) && len(list) > 0 {
			return list[0].Pos.Column, list[0].Msg
		}
		return 1, err.Error()
	}
	n := r.node(tree)
	if r.why == "" && !n.condition() {
		r.refuse(tree, "is a number, want a condition, such as 'p99_ms < 500'")
	}
	r.kpi.condition = n
	return r.at, r.why
}

func number(s string) (float64, error) {
	if p, ok := strings.CutSuffix(s, "%"); ok {
		v, err := strconv.ParseFloat(p, 64)
		return v / 100, err
	}
	d, err := time.ParseDuration(s)
	return float64(d) / float64(time.Millisecond), err
}

func (r *reader) refuse(e ast.Node, why string) node {
	if r.why == "" {
		r.at, r.why = int(e.Pos()), why
	}
	return constant(0)
}

func (r *reader) text(e ast.Node) string { return r.src[e.Pos()-1 : min(int(e.End())-1, len(r.src))] }

func (r *reader) node(e ast.Expr) node {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return r.node(e.X)
	case *ast.BasicLit:
		if e.Kind != token.INT && e.Kind != token.FLOAT {
			return r.refuse(e, "want a number")
		}
		v, err := strconv.ParseFloat(e.Value, 64)
		if err != nil {
			return r.refuse(e, "want a number in decimal digits")
		}
		return constant(v)
	case *ast.UnaryExpr:
		if e.Op == token.SUB {
			return binary{op: token.SUB, x: constant(0), y: r.numeric(e.X)}
		}
	case *ast.BinaryExpr:
		return r.operation(e)
	case *ast.Ident, *ast.IndexExpr:
		return r.metric(e, e, nil)
	case *ast.CallExpr:
		if name, ok := e.Fun.(*ast.Ident); ok {
			if f, ok := functions[name.Name]; ok {
				return r.call(e, name.Name, f)
			}
		}
		return r.metric(e, e.Fun, e.Args)
	}
	return r.refuse(e, "is not understood, want numbers, metrics, + - * /, comparisons, && and ||")
}

func (r *reader) numeric(e ast.Expr) node {
	n := r.node(e)
	if n.condition() {
		return r.refuse(e, "is a condition, want a number")
	}
	return n
}

func (r *reader) operation(e *ast.BinaryExpr) node {
	switch e.Op {
	case token.ADD, token.SUB, token.MUL, token.QUO:
		return binary{op: e.Op, x: r.numeric(e.X), y: r.numeric(e.Y)}
	case token.LSS, token.LEQ, token.GTR, token.GEQ, token.EQL, token.NEQ:
		return comparison{op: e.Op, x: r.numeric(e.X), y: r.numeric(e.Y), text: strings.TrimSpace(r.text(e))}
	case token.LAND, token.LOR:
		x, y := r.node(e.X), r.node(e.Y)
		for i, n := range []node{x, y} {
			if !n.condition() {
				return r.refuse([]ast.Expr{e.X, e.Y}[i], "is a number, want a condition")
			}
		}
		return both{or: e.Op == token.LOR, x: x, y: y}
	}
	if r.why == "" {
		r.at, r.why = int(e.OpPos), fmt.Sprintf("%v is not understood, want + - * /, a comparison, && or ||", e.Op)
	}
	return constant(0)
}

func (r *reader) call(e *ast.CallExpr, name string, f function) node {
	if len(e.Args) < f.least || len(e.Args) > f.most {
		return r.refuse(e, "want "+f.Form)
	}
	c := call{name: name, f: f, text: r.text(e)}
	for _, a := range e.Args {
		c.args = append(c.args, r.numeric(a))
	}
	if m, ok := c.args[0].(metric); f.several && (!ok || !find(m.Metric).Several) {
		return r.refuse(e.Args[0], "want a metric with many values, such as retry_delay[1]")
	}
	return c
}

// metric reads NAME, NAME[KIND], and either with (CASE) or (CASE, PHASE) behind it.
func (r *reader) metric(whole, e ast.Expr, args []ast.Expr) node {
	if v, ok := r.values[int(whole.Pos())-1]; ok && args == nil {
		return constant(v)
	}
	ref := Ref{Case: r.kpi.Case, Phase: r.kpi.Phase, After: r.kpi.After, Within: r.kpi.Within}
	if x, ok := e.(*ast.IndexExpr); ok {
		ref.Kind, e = strings.TrimSpace(r.src[x.Lbrack:x.Rbrack-1]), x.X
	}
	id, ok := e.(*ast.Ident)
	if !ok {
		return r.refuse(whole, "is not understood, want a metric")
	}
	m := find(id.Name)
	switch {
	case m == nil:
		why := "there is no metric " + strictyaml.Quote(id.Name)
		var names []string
		for _, m := range Metrics {
			names = append(names, m.Name)
		}
		if near := strictyaml.Near(id.Name, names); near != "" {
			why += "; did you mean " + near + "?"
		}
		return r.refuse(whole, why)
	case m.Kinds == "" && ref.Kind != "":
		return r.refuse(whole, m.Name+" has no kinds")
	case m.Kinds != "" && ref.Kind == "":
		return r.refuse(whole, fmt.Sprintf("want %s[%s]", m.Name, m.Kinds))
	case m.Kinds == "width":
		if d, err := time.ParseDuration(ref.Kind); err != nil || d <= 0 {
			return r.refuse(whole, fmt.Sprintf("want %s[100ms], a width above 0", m.Name))
		}
	}
	if m.Kinds == "retry" {
		if n, err := strconv.Atoi(ref.Kind); err != nil || n < 1 || strconv.Itoa(n) != ref.Kind {
			return r.refuse(whole, fmt.Sprintf("want %s[1], the number of a retry", m.Name))
		}
	}
	ref.Metric = m.Name
	if len(args) > 2 {
		return r.refuse(whole, "want (CASE) or (CASE, PHASE)")
	}
	if len(args) > 0 {
		name, err := unquote(r.text(args[0]))
		if err != nil || name == "" {
			return r.refuse(args[0], "want the name of a case")
		}
		ref.Case = name
	}
	if len(args) > 1 {
		if ref.Phase = r.text(args[1]); !slices.Contains(Phases, ref.Phase) {
			return r.refuse(args[1], "want a phase: "+strings.Join(Phases, ", "))
		}
	}
	if !slices.Contains(r.kpi.refs, ref) {
		r.kpi.refs = append(r.kpi.refs, ref)
	}
	return metric(ref)
}
