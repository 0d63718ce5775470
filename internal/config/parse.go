package config

import "netemd/internal/strictyaml"

// MaxSize is the largest configuration file, in bytes.
const MaxSize = strictyaml.MaxSize

// A Mistake is one thing that is wrong with a configuration.
type Mistake = strictyaml.Mistake

// format is that of the file.
var format = strictyaml.Format{Subject: "configuration", Want: forms, Leading: leading}

// Parse reads a configuration over Default, and validates it; the error has a *Mistake for
// each thing that is wrong. Unknown, repeated and empty keys are refused, and so is what
// would make one file mean several: further documents, anchors, aliases and tags.
func Parse(text []byte) (Config, error) {
	c, doc := parse("", text)
	if err := doc.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func parse(path string, text []byte) (Config, *strictyaml.Document) {
	c := Default()
	doc := format.Read(path, text, &c)
	if doc.Readable() {
		doc.Add(c.mistakes()...)
	}
	return c, doc
}

// YAML is the configuration as a file that Parse reads back. Limits of a log that there is
// not are not in it.
func (c Config) YAML() ([]byte, error) {
	if c.Audit.Path == "" {
		c.Audit = Audit{}
	}
	return strictyaml.Write(c)
}
