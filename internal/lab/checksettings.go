package lab

import (
	"fmt"
	"strings"

	"netemd/qdisc"
)

// CheckSettings says what would be wrong with settings of a service of the lab. The error is a
// *qdisc.FieldError, or several; of a definition that is not valid what is wrong with that.
func (d Definition) CheckSettings(service string, text []byte) error {
	l, err := d.layout()
	if err != nil {
		return err
	}
	var names []string
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			switch {
			case s.Kind != KindHTTPTier:
			case s.Name == service:
				_, err := l.settings(text)
				return err
			default:
				names = append(names, s.Name)
			}
		}
	}
	want := fmt.Sprintf("a service of kind %s, and the lab %s has none", KindHTTPTier, d.Name)
	if len(names) > 0 {
		want = fmt.Sprintf("a service of kind %s of the lab %s: %s", KindHTTPTier, d.Name, strings.Join(names, ", "))
	}
	return &qdisc.FieldError{Field: "service", Value: service, Want: want}
}
