package agent

import (
	"context"
	"fmt"

	"netemd/internal/fault"
	"netemd/internal/lab"
)

// checkLabOwner refuses to take down another's lab: who made it alone does, or root. What is
// on it then goes with it, whoever it belongs to. Peers with a certificate are one for this:
// the rules, without which they may do nothing, say which labs each of them may touch.
func checkLabOwner(ctx context.Context, info lab.Info) error {
	peer, ok := peerOf(ctx)
	switch {
	case !ok:
		return fmt.Errorf("lab down: it is not known who asks for %s", info.Name)
	case peer.root(), peer.byTLS() && info.By.UID == overflowID, !peer.byTLS() && peer.uid == info.By.UID:
		return nil
	}
	return fmt.Errorf("lab down: %w: lab %s belongs to %s, who alone takes it down, or root", fault.ErrConflict, info.Name, named(info.By.UID))
}

// holder is who gave a target its name: the key by which he is told from others, and the
// words for people. The zero one is of an earlier netemd, which did not keep it: root's.
type holder struct {
	Key   string `json:"key"`
	Words string `json:"words"`
}

func holderOf(ctx context.Context) holder { return holder{ownerKey(ctx), owner(ctx)} }

// checkNameOwner refuses to take away another's name: his next fault would be refused, or
// hit what somebody else gave that name.
func (d *definitions) checkNameOwner(ctx context.Context, name string) error {
	if clearingOwner(ctx) == "" {
		return nil
	}
	d.mu.Lock()
	by := d.holders[name]
	d.mu.Unlock()
	if by.Key == ownerKey(ctx) {
		return nil
	}
	if by.Words == "" {
		by.Words = named(0)
	}
	return fmt.Errorf("target remove: %w: %s belongs to %s, who alone takes it away, or root", fault.ErrConflict, name, by.Words)
}
