package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"netemd/internal/target"
	"netemd/namespaces"
)

// Sweep removes what engines of dead processes left in a namespace: their cls_bpf filters,
// and a clsact that they made once it is empty. Links on tcx and TAPs end with their process.
// Nothing of a living process is touched. It goes on after errors and joins them, and says in
// words what it removed: a fault ended there when its process died.
func Sweep(ctx context.Context, ns *namespaces.Session) (removed []string, err error) {
	err = ns.Do(ctx, func() (err error) {
		removed, err = sweepHere()
		return err
	})
	for i := range removed {
		removed[i] = fmt.Sprintf("%s in namespace %q", removed[i], ns.Name())
	}
	if err != nil {
		err = fmt.Errorf("ebpf: sweep: %w", err)
	}
	return removed, err
}

func sweepHere() (removed []string, err error) {
	links, err := namespaces.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var all []error
	for _, l := range links {
		found, err := sweepDevice(l.Attrs().Index)
		for _, f := range found {
			removed = append(removed, f+" of "+l.Attrs().Name)
		}
		if err != nil && !gone(err) {
			all = append(all, fmt.Errorf("%s: %w", l.Attrs().Name, err))
		}
	}
	return removed, errors.Join(all...)
}

func sweepDevice(index int) (removed []string, err error) {
	if ok, err := hasClsact(index); !ok {
		return nil, err
	}
	left, made := 0, false
	var orphans []netlink.Filter
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		all, err := filters(index, hook)
		if err != nil {
			return nil, err
		}
		for _, f := range all {
			b, ok := f.(*netlink.BpfFilter)
			if !ok || !orphan(b.Name) {
				left++
				continue
			}
			made = made || strings.HasSuffix(b.Name, "-"+filterMade)
			orphans = append(orphans, f)
			removed = append(removed, fmt.Sprintf("the filter %s on %s", b.Name, hook))
		}
	}
	if made && left == 0 { // in one step: without a filter it has no mark
		if err := deleteClsact(index); err != nil {
			return nil, err
		}
		return append(removed, "the clsact"), nil
	}
	for i, f := range orphans {
		if err := netlink.FilterDel(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed[:i], fmt.Errorf("delete cls_bpf filter: %w", err)
		}
	}
	return removed, nil
}

// orphan reports whether a filter's name is one of ours, of a process that no
// longer runs.
func orphan(name string) bool {
	parts := strings.Split(name, "-")
	if len(parts) < 3 || parts[0] != filterName {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	return err == nil && startTime(pid) != parts[2]
}
