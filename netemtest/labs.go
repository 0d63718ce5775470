package netemtest

import (
	"context"
	"fmt"
	"os"
	"strings"

	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
)

// describe reads what a lab is asked for by: YAML, the path of a file, or the name of a
// built-in lab. The error of a mistake in YAML names its line and column.
func describe(ctx context.Context, what string) (labfile.Request, error) {
	var r labfile.Request
	text := strings.TrimSpace(what)
	switch {
	case strings.Contains(text, "\n"), strings.HasPrefix(text, "{"):
		folder, err := os.Getwd() // go test's is the package's folder
		if err != nil {
			return r, fmt.Errorf("lab: %w", err)
		}
		r.Text, r.From = []byte(what), labfile.Source{Folder: folder}
		d, err := labfile.Parse(r.Text, r.From)
		r.Name = d.Name
		return r, err
	case strings.Contains(text, "/"), strings.HasSuffix(text, ".yaml"), strings.HasSuffix(text, ".yml"):
		r, _, err := labfile.Load(ctx, text)
		return r, err
	}
	r.Name = text
	_, err := r.Definition()
	return r, err
}

// labUp brings the lab up under another name.
func (s *Session) labUp(ctx context.Context, r labfile.Request, name string) (lab.Info, error) {
	r.As = name
	return s.client.LabUp(ctx, r, nil)
}
