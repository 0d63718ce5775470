package target

import (
	"errors"

	"netemd/internal/cgroup"
)

// Standing is nil while the groups by which t's packets are selected are there, or there are
// none. The error is fs.ErrNotExist when one is gone, also when another one has its path by
// now.
func (t Target) Standing() error {
	var errs []error
	for _, c := range t.To.Match.Cgroups() {
		errs = append(errs, cgroup.Standing(c))
	}
	return errors.Join(errs...)
}
