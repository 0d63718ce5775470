//go:build !linux

package prober

func prefer() {}
