//go:build linux

package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDebianSources(t *testing.T) {
	const ring = "/usr/share/keyrings/debian-archive-keyring.gpg"
	tests := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{
			name: "deb822, as Debian's images have it",
			files: map[string]string{"sources.list.d/debian.sources": "Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: " + ring + "\n\n" +
				"Types: deb\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\nComponents: main\n"},
			want: []string{"types: deb\nuris: http://mirror.example/debian\nsuites: trixie\ncomponents: main\nsigned-by: " + ring + "\n"},
		},
		{
			name: "one line, with options",
			files: map[string]string{"sources.list": "# deb http://off.example/debian bookworm main\n" +
				"deb [ arch=amd64 signed-by=" + ring + " ] http://mirror.example/debian bookworm main contrib\n" +
				"deb-src http://mirror.example/debian bookworm main\n"},
			want: []string{"deb [signed-by=" + ring + "] http://mirror.example/debian trixie main\n"},
		},
		{
			name: "Debian's own key comes before a third party with Debian's suite names",
			files: map[string]string{
				"sources.list.d/a.list":    "deb [signed-by=/etc/keys/other.gpg] http://other.example/apt bookworm main\n",
				"sources.list.d/b.sources": "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\nSigned-By: " + ring + "\n",
			},
			want: []string{
				"types: deb\nuris: http://mirror.example/debian\nsuites: trixie\ncomponents: main\nsigned-by: " + ring + "\n",
				"deb [signed-by=/etc/keys/other.gpg] http://other.example/apt trixie main\n",
			},
		},
		{
			name: "a disabled stanza, another distribution and other files do not count",
			files: map[string]string{
				"sources.list.d/off.sources":    "Types: deb\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n",
				"sources.list.d/ubuntu.sources": "Types: deb\nURIs: http://mirror.example/ubuntu\nSuites: noble\nComponents: main\n",
				"sources.list.d/old.list.save":  "deb http://old.example/debian bookworm main\n",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(MirrorEnv, "")
			etc := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(etc, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			found, err := debianSources(etc, "trixie")
			if (err != nil) != (tt.want == nil) {
				t.Fatalf("error %v, want one: %v", err, tt.want == nil)
			}
			var got []string
			for _, s := range found {
				got = append(got, s.text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMirrorFromTheEnvironment(t *testing.T) {
	t.Setenv(MirrorEnv, "http://mirror.example/debian")
	found, err := debianSources(t.TempDir(), "trixie")
	if err != nil || len(found) != 1 {
		t.Fatalf("%d sources, error %v, want 1", len(found), err)
	}
	want := "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\nSigned-By: " + keyring + "\n"
	if diff := cmp.Diff(want, found[0].text); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}
