package journal

import (
	"fmt"
	"os"
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
		if ref, err := namespaces.Path(p.Namespace); err == nil && p.Namespace != "" {
			path = ref
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
