//go:build !linux

package client

import "net"

func peerPID(net.Conn) int { return 0 }
func busy(int) bool        { return false }
func activity(int) uint64  { return 0 }
func stopped(int) bool     { return false }
