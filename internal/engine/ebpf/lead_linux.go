package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"netemd/internal/failpoint"
	"netemd/internal/match"
)

// maxMoves bounds how often a program is put back to the head: who else insists on
// standing there is left alone after that.
const maxMoves = 5

// lead sees to it that nobody stands before the place's program where a queue sends
// packets through the hook once more. The place is locked.
func (pl *place) lead() {
	t, ok := pl.prog.(*tcx)
	if !ok || !pl.hook.queues.Load() {
		return
	}
	// Programs come and go while it looks; it will look again.
	if err := t.lead(pl.load); err != nil && !errors.Is(err, fs.ErrNotExist) {
		pl.e.log.Warn("ebpf: a program of others comes first", "place", pl.at.String(), "err", err)
	}
}

// lead puts the program before those of others which came to stand before it since it
// was attached. A queue sends a packet through the whole hook once more, so a program
// before ours would see it twice. Programs of engines keep their order among
// themselves. load makes the program anew, since the kernel takes the same one only once
// at a hook; it takes over once it is there. A packet that is between both in that moment
// passes unjudged, and none is judged twice.
func (t *tcx) lead(load func() (*ebpf.Program, func(), error)) error {
	if t.moves >= maxMoves {
		return nil
	}
	err := inside(context.Background(), t.namespace, func() error {
		anchor, err := t.misplaced()
		if anchor == nil || err != nil {
			return err
		}
		t.moves++
		prog, takeOver, err := load()
		if err != nil {
			return err
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: t.index, Program: prog, Attach: t.at, Anchor: anchor})
		if err != nil {
			return errors.Join(err, prog.Close())
		}
		failpoint.At("ebpf.lead.attached")
		takeOver()
		old := tcx{link: t.link, prog: t.prog}
		t.link, t.prog = l, prog
		t.log.Info("ebpf: moved a program before those of others", "namespace", t.namespace,
			"device", t.index, "hook", t.hook, "times", t.moves)
		err = old.detach()
		failpoint.At("ebpf.lead.detached")
		return err
	})
	if err != nil {
		return fmt.Errorf("move to the head of tcx %s: %w", t.hook, err)
	}
	return nil
}

// misplaced says where the program belongs: nil when nobody else stands between it and
// the last of ours before it, which holds as long as the revision of the hook is the same.
func (t *tcx) misplaced() (link.Anchor, error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: t.index, Attach: t.at})
	if err != nil || all.Revision == t.revision {
		return nil, err
	}
	self, err := t.link.Info()
	if err != nil {
		return nil, err
	}
	anchor, others := link.Head(), false
	for _, p := range all.Programs {
		id, isLink := p.LinkID()
		if isLink && id == self.ID {
			break
		}
		name, err := match.ProgramName(p.ID)
		if err != nil {
			return nil, err
		}
		own := match.Ours(name)
		others = !own
		if own && isLink {
			anchor = link.AfterLinkByID(id)
		}
	}
	if !others {
		t.revision = all.Revision
		return nil, nil
	}
	return anchor, nil
}
