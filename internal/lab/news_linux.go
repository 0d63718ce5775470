package lab

import "sync"

// news tells those who wait that something has changed. The zero value is ready, and safe for
// concurrent use.
type news struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that is closed at the next tell.
func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}
