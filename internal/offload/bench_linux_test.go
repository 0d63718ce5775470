package offload

import (
	"testing"

	"netemd/internal/target"
	"netemd/namespaces"
)

// BenchmarkRead is what an apply on a link of ours pays for it: four devices in three
// namespaces, among 50 others.
func BenchmarkRead(b *testing.B) {
	wire, client, server := space(b), space(b), space(b)
	veth(b, namespaces.VethEnd{Namespace: wire, Name: "server"}, namespaces.VethEnd{Namespace: server, Name: "eth0"})
	veth(b, namespaces.VethEnd{Namespace: wire, Name: "client"}, namespaces.VethEnd{Namespace: client, Name: "eth0"})
	for range 50 {
		space(b)
	}
	k := New(b.TempDir())
	places := []target.Place{{Namespace: wire, Device: "server", Owned: true}}
	for b.Loop() {
		found, err := k.Read(b.Context(), places)
		if err != nil || len(found) != 4 {
			b.Fatalf("%+v, %v", found, err)
		}
	}
}
