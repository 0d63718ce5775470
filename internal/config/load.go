package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// File is a configuration, and where in which file each key of it stands.
type File struct {
	Config
	// Path is the file; empty where there was none and the defaults are in force.
	Path string
	at   places
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
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return File{Config: Default()}, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("configuration: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return File{}, fmt.Errorf("configuration: %w", err) // the kernel's has the path
	}
	file := File{Path: path}
	var mistakes []*Mistake
	file.Config, file.at, mistakes = parse(text)
	if err := file.all(mistakes); err != nil {
		return File{}, err
	}
	return file, nil
}

// all are mistakes of the file as one error; nil for none.
func (f File) all(mistakes []*Mistake) error {
	for _, m := range mistakes {
		m.Path = f.Path
	}
	return all(mistakes)
}

// Explain makes each *qdisc.FieldError of err, which is about a value of the configuration
// that this host does not have, a *Mistake with the file, line and column. Other errors stay
// as they are.
func (f File) Explain(err error) error {
	mistakes, rest := ofFields(err)
	if len(mistakes) == 0 {
		return err
	}
	f.at.locate(mistakes)
	return errors.Join(f.all(mistakes), rest)
}
