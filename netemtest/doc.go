// Package netemtest puts real network faults into Go tests: a lab of network namespaces for
// the test, packet loss, delays, partitions and toxics in it, each in one line and undone when
// the test ends.
//
//	func TestRetries(t *testing.T) {
//		lab := netemtest.Lab(t, "pg") // a client, a wire, a server with a real PostgreSQL
//		client := lab.Node("client")
//		pool := open(client.DialContext, lab.Addr("pg"))
//		netemtest.Loss(t, "pg", "20%") // until the test ends
//		...
//	}
//
// # Which agent does it
//
// The faults are made by an agent, netemd. Where NETEMD_SOCKET is set, or one answers at its
// default socket, that one is used. Otherwise the test's own process is one, with a state folder
// of its own below /run, and nothing has to be installed; this needs Linux and root:
//
//	go test -exec sudo ./...
//
// Such a process raises GOMAXPROCS to 8 at least, and starts further processes of its own
// program (the proxy and other services of labs, commands in nodes, and a watcher that cleans up
// when the test dies). They are told apart by their first argument in an init function of this
// package, so that nothing is needed in TestMain.
//
// # When a fault ends
//
// At the latest when the test ends that made it, in t.Cleanup: also after FailNow and after a
// panic. Where no cleanup runs (a panic in another goroutine, go test -timeout, os.Exit, SIGKILL), the ebpf engine's faults
// open by themselves within 50 ms, and the watcher removes the rest, labs included, within
// seconds. If it is killed as well, the next test process that starts an agent does. Faults at an
// agent that was running already are held by a connection to it, and end with that.
//
// # What fails a test
//
// A green test that ran unimpaired proves nothing. A fault fails the test that made it when it
// was lost or changed by somebody else while it should stand, when more than 1 % of its packets
// passed unimpaired since the engine was late, or when no packet met it at all. Fault.AllowGaps
// and Fault.AllowUnmet are for tests that mean it. When a test failed, or with -v, its log says
// which fault was active when.
//
// Tests are skipped only where this machine cannot do it, with the reason that trying the kernel
// gave, or that there is neither root nor an agent. With NETEMTEST_REQUIRE=1 each skip is a
// failure, for CI.
//
// # Parallel tests
//
// Each Lab is a copy of its own: tests that bring one up and aim at its targets never meet.
// Faults at what several tests share (a device, a target of a running agent, a lab of a Session)
// stand one after the other: the second test waits until the first one's faults have ended, or
// until shortly before its own deadline. Faults of one test combine, also those of its subtests
// while it has one itself.
//
// # What it does not do
//
// It impairs packets; what a client makes of that is the client's. A connection that was kept
// alive through a partition stays dead in an HTTP/2 client until that notices (ReadIdleTimeout of
// golang.org/x/net/http2, see the example), a pool hands out connections that no packet can pass, and the
// kernel's own retransmissions take seconds to come back after a long silence. A Go program that waits without a
// deadline waits: give each call one. Nor is time made faster: a lost SYN costs a real second.
package netemtest
