package control

import "testing"

func TestCounts(t *testing.T) {
	for at, want := range map[[2]string]bool{
		{HTTPEcho, "hits"}: true, {HTTPEcho, "hits_get"}: true, {HTTPEcho, "hits_"}: false, {HTTPEcho, "rows"}: false,
		{HTTPTier, "work_ms"}: true, {HTTPTier, "stock.retries"}: true, {HTTPTier, ".retries"}: false, {HTTPTier, "stock.rows"}: false,
		{Payment, "rows"}: true, {Payment, "a.calls"}: false, {"grpc-echo", "hits"}: false,
	} {
		if got := Counts(at[0], at[1]); got != want {
			t.Errorf("%v: %v", at, got)
		}
	}
}
