// Opens the page that a clicked notification belongs to. Does nothing else.
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(lead(new URL(event.notification.data, self.location.origin).href));
});

// An open page navigates itself: it is outside this worker's scope, so the worker may not navigate it.
async function lead(address) {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = pages.find((page) => page.visibilityState === "visible") || pages[0];
  if (!open) return self.clients.openWindow(address);
  open.postMessage({ goto: address });
  return open.focus().catch(() => null);
}
