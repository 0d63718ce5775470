package agent

import (
	"fmt"
	"sync"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/lease"
)

// followers count the streams that wait for what comes, all and of each owner. The zero
// value has none.
type followers struct {
	mu sync.Mutex
	n  int
	of map[string]int
}

// follow counts a call that waits for what comes; leave ends that, and is nil for others.
// The error is fault.ErrBusy when there are too many, in all or of one owner.
func (a *Agent) follow(c *call, req any) (leave func(), err error) {
	switch r := req.(type) {
	case *netemv1.WatchRequest:
	case *netemv1.PacketsRequest:
		if !r.GetFollow() {
			return nil, nil //nolint:nilnil // nothing to leave
		}
	default:
		return nil, nil //nolint:nilnil // nothing to leave
	}
	owner, most := c.peer.ownerKey(), a.cfg.Settings.Limits.Followers
	f := &a.followers
	f.mu.Lock()
	defer f.mu.Unlock()
	switch share := lease.OwnerShare(most); {
	case f.n >= most:
		return nil, fmt.Errorf("%s: %w: %d watch or follow, which is the most (limits.followers)", c.verb, fault.ErrBusy, most)
	case f.of[owner] >= share:
		return nil, fmt.Errorf("%s: %w: %d of %s watch or follow, which is the most for one owner (a quarter of limits.followers)", c.verb, fault.ErrBusy, share, c.peer.owner)
	case f.of == nil:
		f.of = map[string]int{}
	}
	f.n++
	f.of[owner]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.n--
		if f.of[owner]--; f.of[owner] == 0 {
			delete(f.of, owner)
		}
	}, nil
}
