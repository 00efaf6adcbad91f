// Shows nothing and fetches nothing; it only brings whoever touches a notification to what waits there.
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(lead(new URL(event.notification.data, self.location.origin).href));
});

// A page that is open already goes there itself: it is outside of this worker's folder, so the worker may not send it.
async function lead(address) {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = pages.find((page) => page.visibilityState === "visible") || pages[0];
  if (!open) return self.clients.openWindow(address);
  open.postMessage({ goto: address });
  return open.focus().catch(() => null);
}
