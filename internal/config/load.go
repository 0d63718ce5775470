package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"netemd/internal/strictyaml"
)

// File is a configuration, and where in which file each key of it stands.
type File struct {
	Config
	// Path is the file; empty where there was none and the defaults are in force.
	Path string
	doc  *strictyaml.Document
}

// Load reads the file at path, or DefaultPath for an empty one, which alone may be
// missing: the result is Default then. Everything is checked that can be without asking
// the host who exists. An error of the text has a *Mistake for each thing that is wrong; one
// of the file matches fs.ErrNotExist or fs.ErrPermission.
func Load(path string) (File, error) {
	named := path != ""
	if !named {
		path = DefaultPath
	}
	text, err := strictyaml.Load(context.Background(), path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return File{Config: Default()}, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("configuration: %w", err) // the kernel's has the path
	}
	file := File{Path: path}
	if file.Config, file.doc = parse(path, text); file.doc.Err() != nil {
		return File{}, file.doc.Err()
	}
	return file, nil
}

// Explain makes each *qdisc.FieldError of err, which is about a value of the configuration
// that this host does not have, a *Mistake with the file, line and column. Other errors stay
// as they are.
func (f File) Explain(err error) error {
	if f.doc == nil {
		return format.None().Explain(err)
	}
	return f.doc.Explain(err)
}
