package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
)

// placesOf says where the namespaces are, too.
func placesOf(places []target.Place) []Place {
	all := make([]Place, len(places))
	for i, p := range places {
		path := fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
		if p.Namespace != "" {
			path = filepath.Join(namespaces.Dir, p.Namespace)
		}
		all[i] = Place{Place: p, Path: path}
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil {
			all[i].Inode = st.Ino
		}
	}
	return all
}

// bootID names the machine's life.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}
