package config

import (
	"fmt"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"netemd/qdisc"
)

// String is the text that is read back.
func (d Duration) String() string { return qdisc.FormatDuration(time.Duration(d)) }

// String is the text that is read back.
func (b Bytes) String() string { return qdisc.Bytes(b).String() }

// String is the text that is read back.
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// MarshalYAML writes it with its unit.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// MarshalYAML writes it with its unit.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }

// MarshalYAML writes it as text: as a number it would be read as another one elsewhere.
func (m Mode) MarshalYAML() (any, error) { return m.String(), nil }

// UnmarshalYAML reads "10m".
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	v, err := qdisc.ParseDuration(text(n))
	*d = Duration(v)
	return at(n, err)
}

// UnmarshalYAML reads "1MiB".
func (b *Bytes) UnmarshalYAML(n ast.Node) error {
	v, err := qdisc.ParseBytes(text(n))
	*b = Bytes(v)
	return at(n, err)
}

// maxMode are the bits of read, write and execute.
const maxMode = 0o777

// UnmarshalYAML reads 0666, with or without quotes, in octal.
func (m *Mode) UnmarshalYAML(n ast.Node) error {
	v, err := strconv.ParseUint(text(n), 8, 32)
	if err != nil || v > maxMode {
		return at(n, &qdisc.FieldError{Value: text(n), Want: "permissions in octal, such as 0666"})
	}
	*m = Mode(v)
	return nil
}

// text is a scalar as it was written, without quotes; empty for what is none.
func text(n ast.Node) string {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value
	case ast.ScalarNode:
		return s.GetToken().Value
	}
	return ""
}

// at gives err the field and the line of its node.
func at(n ast.Node, err error) error {
	if err == nil {
		return nil
	}
	return &yaml.SyntaxError{Message: qdisc.InField(fieldOf(n), err).Error(), Token: n.GetToken()}
}
