// Package process makes services of labs fail: it kills, stops and restarts them by the
// timetable of a fault.Outage.
//
// It signals nothing by itself. Each service has a keeper of its own (internal/lab/service),
// which knows all its processes, is told what to do over a link, and puts the service back
// when its time is over, when the fault's deadline is, and when the link ends, which it does
// with this process. What is here goes through the timetable, keeps the number of services that
// are down at once, and the record of what happened.
package process
