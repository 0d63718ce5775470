package location

import (
	"context"

	"netemd/internal/cgroup"
	"netemd/internal/target"
)

// cgroup finds the device that the packets of a cgroup's processes pass.
func (Finder) cgroup(ctx context.Context, d target.Definition) (target.Target, error) {
	return cgroup.Resolve(ctx, d)
}
