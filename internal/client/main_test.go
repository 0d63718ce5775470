package client

import (
	"net"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	netemv1 "netemd/api/netem/v1"
)

// agentVariable makes the test binary an agent at that socket, in a process of its own.
const agentVariable = "NETEMD_TEST_CLIENT_AGENT"

func TestMain(m *testing.M) {
	if socket := os.Getenv(agentVariable); socket != "" {
		os.Exit(beAgent(socket))
	}
	os.Exit(m.Run())
}

func beAgent(socket string) int {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return 1
	}
	s := grpc.NewServer()
	a := newAgent()
	a.hang = true
	netemv1.RegisterFaultsServer(s, a)
	healthv1.RegisterHealthServer(s, health.NewServer())
	if err := s.Serve(l); err != nil {
		return 1
	}
	return 0
}
