// Package e2e tests netemd and netemctl as a user meets them: two programs, a
// socket, a real PostgreSQL, on whichever engine this kernel has.
package e2e
