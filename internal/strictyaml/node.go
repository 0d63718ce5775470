package strictyaml

import "github.com/goccy/go-yaml/ast"

// text is a scalar as it was written, without quotes; empty for what is none.
func text(n ast.Node) string {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value
	case *ast.LiteralNode:
		if s.Value != nil {
			return s.Value.Value
		}
	case ast.ScalarNode:
		return s.GetToken().Value
	}
	return ""
}

// isNull reports whether a key has no value.
func isNull(n ast.Node) bool {
	switch n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return true
	}
	return false
}

// isEmpty reports whether a key has no value, or one in which nothing is.
func isEmpty(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value == ""
	case *ast.MappingNode:
		return len(n.Values) == 0
	case *ast.SequenceNode:
		return len(n.Values) == 0
	}
	return isNull(n)
}

func isMapping(n ast.Node) bool {
	_, ok := n.(ast.MapNode)
	return ok
}

func kind(n ast.Node) string {
	switch n := n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.LiteralNode:
		return "a block of text"
	case ast.ScalarNode:
		return Quote(text(n))
	}
	return "none of the kinds that are known here"
}

// begin is where a node begins: that of a mapping without brackets is its first key.
func begin(n ast.Node) Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		n = m.Key
	}
	if n == nil || n.GetToken() == nil {
		return Position{}
	}
	p := n.GetToken().Position
	return Position{p.Line, p.Column}
}
