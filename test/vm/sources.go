//go:build linux

package vm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// MirrorEnv names a Debian mirror for machines whose own apt has none, such as
// Ubuntu's.
const MirrorEnv = "NETEMD_DEBIAN_MIRROR"

// keyring is where the package debian-archive-keyring puts Debian's keys.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// releases are the names by which an entry is known to be one of Debian's.
var releases = []string{
	"stable", "oldstable", "oldoldstable", "testing", "unstable", "sid",
	"bullseye", "bookworm", "trixie", "forky", "duke",
}

// source is the text of an apt source file that offers one suite.
type source struct {
	text, ext string
	// origin says where the machine has it from.
	origin string
	signed bool
}

// debianSources derives apt source files for suite from the machine's own
// entries of Debian: same mirror, same keys, another suite. The likeliest comes
// first, since a third party may name its suites like Debian.
func debianSources(etc, suite string) ([]source, error) {
	if uri := os.Getenv(MirrorEnv); uri != "" {
		return []source{{text: stanza(uri, suite, ""), ext: ".sources", origin: MirrorEnv}}, nil
	}
	files, err := filepath.Glob(filepath.Join(etc, "sources.list.d", "*"))
	if err != nil {
		return nil, err
	}
	var found []source
	for _, f := range append([]string{filepath.Join(etc, "sources.list")}, files...) {
		data, err := os.ReadFile(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch filepath.Ext(f) {
		case ".list":
			found = append(found, oneLine(string(data), suite, f)...)
		case ".sources":
			found = append(found, deb822(string(data), suite, f)...)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no entry of Debian among apt's sources in %s: install debian-archive-keyring and set %s to the URI of a Debian mirror", etc, MirrorEnv)
	}
	slices.SortStableFunc(found, func(a, b source) int { return cmp.Compare(rank(a), rank(b)) })
	return found, nil
}

func rank(s source) int {
	if s.signed {
		return 0
	}
	return 1
}

func stanza(uri, suite, signedBy string) string {
	if signedBy == "" {
		signedBy = keyring
	}
	return fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n", uri, suite, signedBy)
}

// isDebian reports whether one of the suites is a release of Debian itself, not
// of its security or third-party archives.
func isDebian(suites, components []string) bool {
	return slices.Contains(components, "main") &&
		slices.ContainsFunc(suites, func(s string) bool { return slices.Contains(releases, s) })
}

// oneLine reads the "deb [options] uri suite component..." format.
func oneLine(text, suite, origin string) []source {
	var found []source
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		rest = strings.TrimSpace(rest)
		options := ""
		if strings.HasPrefix(rest, "[") {
			var closed bool
			if options, rest, closed = strings.Cut(rest[1:], "]"); !closed {
				continue
			}
		}
		f := strings.Fields(rest)
		if len(f) < 3 || !isDebian(f[1:2], f[2:]) {
			continue
		}
		kept := slices.DeleteFunc(strings.Fields(options), func(o string) bool {
			return strings.HasPrefix(o, "arch=") || strings.HasPrefix(o, "arch-=") || strings.HasPrefix(o, "arch+=")
		})
		if !slices.ContainsFunc(kept, func(o string) bool { return strings.HasPrefix(o, "signed-by=") }) {
			if _, err := os.Stat(keyring); err == nil {
				kept = append(kept, "signed-by="+keyring)
			}
		}
		opts := strings.Join(kept, " ")
		if opts != "" {
			opts = "[" + opts + "] "
		}
		found = append(found, source{
			text: fmt.Sprintf("deb %s%s %s main\n", opts, f[0], suite), ext: ".list",
			origin: origin, signed: strings.Contains(opts, "debian-archive"),
		})
	}
	return found
}

// deb822 reads the stanza format of *.sources.
func deb822(text, suite, origin string) []source {
	var found []source
	for para := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		fields := map[string]string{}
		var order []string
		last := ""
		for line := range strings.Lines(para) {
			line = strings.TrimRight(line, "\n")
			switch key, value, ok := strings.Cut(line, ":"); {
			case strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
				fields[last] += "\n" + line
			case ok:
				last = strings.ToLower(strings.TrimSpace(key))
				fields[last] = strings.TrimSpace(value)
				order = append(order, last)
			}
		}
		if strings.EqualFold(fields["enabled"], "no") ||
			!slices.Contains(strings.Fields(fields["types"]), "deb") ||
			!isDebian(strings.Fields(fields["suites"]), strings.Fields(fields["components"])) {
			continue
		}
		fields["types"], fields["suites"], fields["components"] = "deb", suite, "main"
		if fields["signed-by"] == "" {
			fields["signed-by"] = keyring
			order = append(order, "signed-by")
		}
		var b strings.Builder
		for _, key := range order {
			if key != "architectures" {
				fmt.Fprintf(&b, "%s: %s\n", key, fields[key])
			}
		}
		found = append(found, source{
			text: b.String(), ext: ".sources",
			origin: origin, signed: strings.Contains(fields["signed-by"], "debian-archive"),
		})
	}
	return found
}
