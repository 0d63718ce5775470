package labfile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"netemd/internal/impairment"
	"netemd/internal/lab"
	"netemd/internal/strictyaml"
	"netemd/internal/target"
	"netemd/internal/testbed/settings"
	"netemd/qdisc"
)

// MaxSize is the largest lab file, in bytes.
const MaxSize = strictyaml.MaxSize

// maxLines has room for the largest lab, with a line or two for each node, link and key.
const maxLines = 100_000

var format = strictyaml.Format{MaxLines: maxLines}

// Source says where a text comes from.
type Source struct {
	// Path is the file's, for the errors; empty where there is none.
	Path string
	// Folder is what relative paths in the text are relative to, an absolute path, and the
	// working directory of commands; empty: relative paths are refused.
	Folder string
}

// Parse reads a lab. The error has a *strictyaml.Mistake for each thing that is wrong, in the
// order of the text: with what keys and values can be and with names that nothing has; what
// only the lab as a whole makes wrong, such as a node without a way to another one, is said of a text
// in which all else is right, since most of it would follow from the rest.
func Parse(text []byte, from Source) (lab.Definition, error) {
	var f file
	doc := format.Read(from.Path, text, &f)
	if !doc.Readable() {
		return lab.Definition{}, doc.Err()
	}
	doc.Add(f.links()...)
	doc.Add(f.paths(from.Folder)...)
	doc.Add(f.references()...)
	if err := doc.Err(); err != nil {
		return lab.Definition{}, err
	}
	def := f.definition()
	if rest := doc.Check(f.keys(def.Validate())); rest != nil {
		doc.Add(&strictyaml.Mistake{Key: strictyaml.Whole, Wrong: rest.Error()})
	}
	if err := doc.Err(); err != nil {
		return lab.Definition{}, err
	}
	return def, nil
}

// Load reads the file at path, and the lab in it; relative paths in it are relative to its
// folder. The error is that of strictyaml.Load, or Parse's.
func Load(ctx context.Context, path string) (Request, lab.Definition, error) {
	refuse := func(err error) (Request, lab.Definition, error) {
		return Request{}, lab.Definition{}, fmt.Errorf("lab file: %w", err)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return refuse(err)
	}
	text, err := strictyaml.Load(ctx, path)
	if err != nil {
		return refuse(err)
	}
	return Read(text, Source{Path: path, Folder: filepath.Dir(absolute)})
}

// Read asks for the lab in a text, and returns it; the error is Parse's.
func Read(text []byte, from Source) (Request, lab.Definition, error) {
	def, err := Parse(text, from)
	return Request{Name: def.Name, Text: text, From: from}, def, err
}

// links are the mistakes of the links' impairments, which a definition has no keys for.
func (f *file) links() (out []*strictyaml.Mistake) {
	for i, l := range f.Links {
		for name, k := range map[string]*impairment.Keys{"impairment": l.Impairment, "a_to_b": l.AB, "b_to_a": l.BA} {
			if k == nil {
				continue
			}
			key := strictyaml.Key("links", i, name)
			if name != "impairment" && l.Impairment != nil {
				out = append(out, &strictyaml.Mistake{Key: key, Wrong: "stands beside impairment", Want: "impairment for both directions, or a_to_b and b_to_a"})
				continue
			}
			mistakes, _ := strictyaml.Of(k.Validate())
			for _, m := range mistakes {
				m.Key = strings.TrimSuffix(key+"."+m.Key, ".")
			}
			out = append(out, mistakes...)
		}
	}
	return out
}

// paths makes relative paths absolute, and returns those that cannot be.
func (f *file) paths(folder string) (out []*strictyaml.Mistake) {
	absolute := func(path *string, key string) {
		switch {
		case *path == "" || filepath.IsAbs(*path):
		case folder == "":
			out = append(out, &strictyaml.Mistake{Key: key, Value: *path, Wrong: strictyaml.NotValid(*path), Want: "an absolute path, since the text comes from no file"})
		default:
			*path = filepath.Join(folder, *path)
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		for k := range n.Value.Services {
			s := &n.Value.Services[k]
			key := strictyaml.Key("nodes", n.Name, "services", k)
			absolute(&s.Directory, key+".directory")
			absolute(&s.Log, key+".log")
			// A name without a slash is looked for in PATH.
			for _, c := range []struct {
				command []string
				key     string
			}{{s.Command, ".command"}, {s.Ready.Command, ".ready.command"}} {
				if len(c.command) > 0 && strings.Contains(c.command[0], "/") {
					absolute(&c.command[0], key+c.key+"[0]")
				}
			}
			if s.Directory == "" && len(s.Command) > 0 {
				s.Directory = folder
			}
		}
	}
	return out
}

// definition is the lab that the file says.
func (f *file) definition() lab.Definition {
	d := lab.Definition{Name: f.Lab}
	for _, n := range f.Nodes {
		node := lab.Node{Name: n.Name, Forward: n.Value.Forward}
		for _, s := range n.Value.Sysctls {
			node.Sysctls = append(node.Sysctls, lab.Sysctl{Name: s.Name, Value: string(s.Value)})
		}
		for _, r := range n.Value.Routes {
			node.Routes = append(node.Routes, lab.Route{To: r.To, Via: r.Via})
		}
		for _, s := range n.Value.Services {
			node.Services = append(node.Services, s.definition())
		}
		d.Nodes = append(d.Nodes, node)
	}
	for _, s := range f.Switches {
		d.Switches = append(d.Switches, lab.Switch{Name: s.Name, Subnet: s.Value.Subnet, Subnet6: s.Value.Subnet6})
	}
	for _, l := range f.Links {
		link := lab.Link{
			A: l.A, B: l.B, Subnet: l.Subnet, Subnet6: l.Subnet6, AddressA: l.AddressA, AddressB: l.AddressB,
			Direct: l.Wire != nil && !*l.Wire, AB: netem(l.AB), BA: netem(l.BA),
		}
		if l.Impairment != nil {
			link.AB, link.BA = netem(l.Impairment), netem(l.Impairment)
		}
		d.Links = append(d.Links, link)
	}
	for _, t := range f.Targets {
		d.Targets = append(d.Targets, lab.TargetDefinition{
			Name: t.Name, Node: t.Value.Node, Client: t.Value.Client, Protocol: uint8(t.Value.Protocol), Ports: t.Value.Port,
			Proxy: t.Value.Proxy, HTTPProxy: t.Value.HTTPProxy, Link: t.Value.Link,
		})
	}
	return d
}

func netem(k *impairment.Keys) *qdisc.Netem {
	if k == nil {
		return nil
	}
	n := k.Netem()
	return &n
}

func (s service) definition() lab.ServiceDefinition {
	d := lab.ServiceDefinition{
		Name: s.Name, Kind: s.Kind, Port: uint16(s.Port), Upstream: s.Upstream, API: uint16(s.API), ReplicaOf: s.ReplicaOf, Command: s.Command,
		User: s.User, Directory: s.Directory, ReadyTimeout: s.ReadyTimeout, Log: s.Log,
		Ready: lab.Readiness{TCP: uint16(s.Ready.TCP), HTTP: s.Ready.HTTP, Command: s.Ready.Command},
	}
	if s.Settings != nil {
		text, _ := s.Settings.YAML() // of keys that were read there is one
		d.Settings = string(text)
	}
	for _, v := range s.Environment {
		d.Environment = append(d.Environment, v.Name+"="+string(v.Value))
	}
	return d
}

// YAML is a lab as a text that Parse reads back as the same. A base impairment with a
// distribution of the user's own has no text: the error is errors.ErrUnsupported.
func YAML(d lab.Definition) ([]byte, error) {
	f, err := fileOf(d)
	if err != nil {
		return nil, err
	}
	return strictyaml.Write(f)
}

func fileOf(d lab.Definition) (file, error) {
	f := file{Lab: d.Name}
	for _, n := range d.Nodes {
		out := node{Forward: n.Forward}
		for _, s := range n.Sysctls {
			out.Sysctls = append(out.Sysctls, strictyaml.Entry[setting]{Name: s.Name, Value: setting(s.Value)})
		}
		for _, r := range n.Routes {
			out.Routes = append(out.Routes, route{To: r.To, Via: r.Via})
		}
		for _, s := range n.Services {
			out.Services = append(out.Services, serviceOf(s))
		}
		f.Nodes = append(f.Nodes, strictyaml.Entry[node]{Name: n.Name, Value: out})
	}
	for _, s := range d.Switches {
		f.Switches = append(f.Switches, strictyaml.Entry[network]{Name: s.Name, Value: network{Subnet: s.Subnet, Subnet6: s.Subnet6}})
	}
	var errs []error
	for i, l := range d.Links {
		out := link{A: l.A, B: l.B, network: network{Subnet: l.Subnet, Subnet6: l.Subnet6}, AddressA: l.AddressA, AddressB: l.AddressB}
		if l.Direct {
			out.Wire = new(bool)
		}
		keys := func(n *qdisc.Netem) *impairment.Keys {
			if n == nil {
				return nil
			}
			k, err := impairment.Of(*n)
			if err != nil {
				errs = append(errs, fmt.Errorf("links[%d]: %w", i, err))
			}
			return &k
		}
		if l.AB != nil && l.BA != nil && *l.AB == *l.BA {
			out.Impairment = keys(l.AB)
		} else {
			out.AB, out.BA = keys(l.AB), keys(l.BA)
		}
		f.Links = append(f.Links, out)
	}
	for _, t := range d.Targets {
		f.Targets = append(f.Targets, strictyaml.Entry[definition]{Name: t.Name, Value: targetOf(t)})
	}
	return f, errors.Join(errs...)
}

func targetOf(t lab.TargetDefinition) definition {
	return definition{Node: t.Node, Client: t.Client, Protocol: target.Protocol(t.Protocol), Port: slices.Clone(t.Ports), Proxy: t.Proxy, HTTPProxy: t.HTTPProxy, Link: t.Link}
}

func serviceOf(s lab.ServiceDefinition) service {
	out := service{
		Name: s.Name, Kind: s.Kind, Port: port(s.Port), Upstream: s.Upstream, API: port(s.API), ReplicaOf: s.ReplicaOf, Command: s.Command,
		User: s.User, Directory: s.Directory, ReadyTimeout: s.ReadyTimeout, Log: s.Log,
		Ready: ready{TCP: port(s.Ready.TCP), HTTP: s.Ready.HTTP, Command: s.Ready.Command},
	}
	if s.Settings != "" {
		if t, err := settings.Parse([]byte(s.Settings)); err == nil {
			out.Settings = &t.Keys
		}
	}
	for _, v := range s.Environment {
		name, value, _ := strings.Cut(v, "=")
		out.Environment = append(out.Environment, strictyaml.Entry[variable]{Name: name, Value: variable(value)})
	}
	return out
}
