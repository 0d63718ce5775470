package strictyaml

import "reflect"

// Named is a mapping whose keys are names that the file chooses, in the order of the file:
// "nodes: {web: {...}, db: {...}}". An entry that is a mapping may be {}.
type Named[T any] []Entry[T]

// Entry is one name and what it stands for.
type Entry[T any] struct {
	Name  string
	Value T
}

// Get is what the name stands for; nil for nothing.
func (n Named[T]) Get(name string) *T {
	for i := range n {
		if n[i].Name == name {
			return &n[i].Value
		}
	}
	return nil
}

// Names are all names, in order.
func (n Named[T]) Names() []string {
	out := make([]string, len(n))
	for i, e := range n {
		out[i] = e.Name
	}
	return out
}

// named is a *Named of any type.
type named interface {
	// add makes room for what the name stands for; the result holds until the next add.
	add(name string) reflect.Value
	entry(i int) (string, reflect.Value)
	length() int
	element() reflect.Type
}

func (n *Named[T]) add(name string) reflect.Value {
	*n = append(*n, Entry[T]{Name: name})
	return reflect.ValueOf(&(*n)[len(*n)-1].Value).Elem()
}

func (n *Named[T]) entry(i int) (string, reflect.Value) {
	return (*n)[i].Name, reflect.ValueOf(&(*n)[i].Value).Elem()
}
func (n *Named[T]) length() int           { return len(*n) }
func (n *Named[T]) element() reflect.Type { return reflect.TypeFor[T]() }

// Several is a list that may be given as a single value: "ports: 80" or "ports: [80, 443]".
// One alone is written as a single value.
type Several[T any] []T

// severalValues is a Several of any type.
type severalValues interface{ several() }

func (Several[T]) several() {}
