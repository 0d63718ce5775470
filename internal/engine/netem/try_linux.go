package netem

import (
	"errors"
	"fmt"
	"slices"

	"netemd/internal/target"
)

// Try does once what a fault on a device of somebody else's needs: an ifb, and a filter
// at the clsact of the loopback that sends a flow there by mirred. It says what it did,
// and leaves it: netns is the descriptor of a scratch namespace. That the ifb can carry
// a netem is another question. The error is errors.ErrUnsupported where the kernel
// lacks something.
func Try(netns int) (detail string, err error) {
	if err := loadIFB(); err != nil {
		return "", err
	}
	c, err := dialRTNL(netns, "scratch")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	const name = namePrefix + "try"
	ifb, err := c.createIFB(name)
	if err != nil {
		return "", err
	}
	lo, err := c.linkByName("lo")
	if err != nil {
		return "", err
	}
	if err := c.addClsact(lo); err != nil {
		return "", err
	}
	prog, _, err := load(target.Match{Include: []target.Flow{{Protocol: 17}}}, 14)
	if err != nil {
		return "", err
	}
	defer func() { _ = prog.Close() }()
	f, _ := position(nil, target.Egress)
	f.name, f.cookie, f.to = filterText("try", name), name, ifb.index
	if err := c.addFilter(lo, f, prog.FD()); err != nil {
		return "", err
	}
	all, err := c.filters(lo, target.Egress)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(all, func(f filter) bool { return f.redirects && f.to == ifb.index }) {
		return "", fmt.Errorf("filter read: lo: the filter that was added does not redirect")
	}
	return "a filter at lo's clsact sends a flow to an ifb in a scratch namespace", nil
}
