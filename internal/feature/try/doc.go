// Package try asks the kernel what it can do, by doing it in a scratch namespace
// and taking it away again. It links what the engines link, which programs that
// only show the answers need not.
package try
