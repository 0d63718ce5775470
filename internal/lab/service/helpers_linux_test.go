package service

import (
	"context"
	"syscall"

	"github.com/vishvananda/netlink"

	"netemd/namespaces"
)

type unixStat = syscall.Stat_t

// loopback brings lo up.
func loopback(namespace string) error {
	return namespaces.Do(context.Background(), namespace, func() error {
		h, err := netlink.NewHandle()
		if err != nil {
			return err
		}
		defer h.Close()
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.LinkSetUp(lo)
	})
}
