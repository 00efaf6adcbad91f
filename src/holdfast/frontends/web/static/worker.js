// Shows nothing and fetches nothing; it only brings whoever touches a notification to what waits there.
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const address = new URL(event.notification.data, self.location.origin).href;
  event.waitUntil(
    self.clients.matchAll({ type: "window", includeUncontrolled: true }).then((pages) => {
      const open = pages.find((page) => "navigate" in page);
      return open ? open.navigate(address).then((page) => page && page.focus()).catch(() => self.clients.openWindow(address)) : self.clients.openWindow(address);
    }),
  );
});
