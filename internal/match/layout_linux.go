package match

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// socketLayout reads it from the kernel's own types, once.
var socketLayout = sync.OnceValues(func() (layout, error) {
	var l layout
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return l, fmt.Errorf("kernel types (BTF): %w", err)
	}
	data, err := offset(spec, "sock", "sk_cgrp_data")
	if err != nil {
		return l, err
	}
	for _, f := range []struct {
		into        *int32
		typ, member string
	}{
		{&l.group, "sock_cgroup_data", "cgroup"},
		{&l.level, "cgroup", "level"},
		{&l.ancestors, "cgroup", "ancestors"},
		{&l.node, "cgroup", "kn"},
		{&l.id, "kernfs_node", "id"},
	} {
		if *f.into, err = offset(spec, f.typ, f.member); err != nil {
			return l, err
		}
	}
	l.group += data
	return l, nil
})

// offset finds a member, also one in an unnamed struct or union.
func offset(spec *btf.Spec, typ, member string) (int32, error) {
	var s *btf.Struct
	if err := spec.TypeByName(typ, &s); err != nil {
		return 0, fmt.Errorf("kernel types (BTF): struct %s: %w", typ, err)
	}
	if at, ok := find(s.Members, member); ok {
		return int32(at.Bytes()), nil
	}
	return 0, fmt.Errorf("kernel types (BTF): struct %s has no %s, which is there from Linux 6.1 on: %w", typ, member, errors.ErrUnsupported)
}

func find(members []btf.Member, name string) (btf.Bits, bool) {
	for _, m := range members {
		if m.Name == name {
			return m.Offset, true
		}
		if m.Name != "" {
			continue
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if at, ok := find(inner, name); ok {
			return m.Offset + at, true
		}
	}
	return 0, false
}
