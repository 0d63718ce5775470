//go:build !linux

package netemtest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// endTime bounds the end of a session.
const endTime = 2 * time.Minute

type ownAgent struct {
	socket string
	log    *log
}

func useOwn(context.Context) (*ownAgent, error) {
	return nil, fmt.Errorf("faults need Linux, or the socket of an agent on it: %w", errors.ErrUnsupported)
}

func (*ownAgent) leave(context.Context) error { return nil }

func (*ownAgent) prepare() {}

func registerChildren() {}

// ledger is nothing where no child of this process could outlive it to take labs down.
type ledger struct{}

func openLedger(context.Context, string) (*ledger, error) { return &ledger{}, nil }

func (*ledger) note(string) error   { return nil }
func (*ledger) strike(string) error { return nil }
func (*ledger) close() error        { return nil }
